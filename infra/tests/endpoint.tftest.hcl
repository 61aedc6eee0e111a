# Without an account: `terraform test` in this folder. The provider answers with invented values for what AWS decides.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_region" {
    defaults = { name = "us-east-1" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/ana-endpoint" }
  }
  mock_resource "aws_ecr_repository" {
    defaults = {
      arn            = "arn:aws:ecr:us-east-1:123456789012:repository/ana-server"
      repository_url = "123456789012.dkr.ecr.us-east-1.amazonaws.com/ana-server"
    }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { id = "ana-01234567-1", arn = "arn:aws:s3:::ana-01234567-1" }
  }
}

variables {
  prefix     = "ana"
  deployment = "01234567"
  region     = "us-east-1"
}

run "first_there_is_only_a_place_to_bring_things_to" {
  assert {
    condition     = output.endpoint == null && output.bucket == "ana-01234567-1" && output.repository == "ana-server"
    error_message = "without an endpoint there should be a bucket and a repository, and no endpoint"
  }
}

run "serverless" {
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "x86-64"
      serverless      = { memory_mb = 2048, max_concurrency = 5 }
    }
  }

  assert {
    condition     = output.endpoint.image == "123456789012.dkr.ecr.us-east-1.amazonaws.com/ana-server@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    error_message = "the image should be named by its digest"
  }
  assert {
    condition     = output.endpoint.model_data == "s3://ana-01234567-1/artefacts/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/model.tar.gz"
    error_message = "the artefact should be named by its digest"
  }
  assert {
    condition = output.endpoint.environment == tomap({
      FUNDOSCOPE_PLATFORM = "serverless"
      FUNDOSCOPE_IMAGE    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    })
    error_message = "the container should be told its image's digest"
  }
  assert {
    condition     = toset(output.endpoint.alarms) == toset(["ana-errors", "ana-latency", "ana-concurrency"])
    error_message = "a serverless endpoint should have three alarms"
  }
}

run "another_artefact_is_another_model" {
  variables {
    endpoint = {
      artefact_digest = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "x86-64"
      serverless      = { memory_mb = 2048, max_concurrency = 5 }
    }
  }

  assert {
    condition     = output.endpoint.model != run.serverless.endpoint.model && output.endpoint.name == run.serverless.endpoint.name
    error_message = "another artefact should make another model, at the same endpoint"
  }
}

run "real_time_on_arm64_with_autoscaling" {
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "arm64"
      real_time = {
        instance_type = "ml.c7g.xlarge"
        count         = 2
        autoscaling   = { min_count = 1, max_count = 4, requests_per_minute = 300 }
      }
    }
  }

  assert {
    condition     = output.endpoint.autoscaled && toset(output.endpoint.alarms) == toset(["ana-errors", "ana-latency"])
    error_message = "it should scale, and have two alarms"
  }
}

run "an_image_for_x86_is_refused_on_graviton" {
  command = plan
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "x86-64"
      real_time       = { instance_type = "ml.m6g.xlarge", count = 1 }
    }
  }
  expect_failures = [var.endpoint]
}

run "an_image_for_arm64_is_refused_elsewhere" {
  command = plan
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "arm64"
      serverless      = { memory_mb = 2048, max_concurrency = 5 }
    }
  }
  expect_failures = [var.endpoint]
}

run "a_gpu_machine_is_no_graviton" {
  command = plan
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "x86-64"
      real_time       = { instance_type = "ml.g4dn.xlarge", count = 1 }
    }
  }
}

run "both_kinds_at_once_are_refused" {
  command = plan
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      architecture    = "x86-64"
      serverless      = { memory_mb = 2048, max_concurrency = 5 }
      real_time       = { instance_type = "ml.m5.xlarge", count = 1 }
    }
  }
  expect_failures = [var.endpoint]
}

run "a_tag_is_no_digest" {
  command = plan
  variables {
    endpoint = {
      artefact_digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      image_digest    = "latest"
      architecture    = "x86-64"
      serverless      = { memory_mb = 2048, max_concurrency = 5 }
    }
  }
  expect_failures = [var.endpoint]
}

run "a_prefix_that_no_bucket_could_have_is_refused" {
  command = plan
  variables {
    prefix = "Ana_Clinic"
  }
  expect_failures = [var.prefix]
}
