# Each part by itself: what it must never be without.

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
}

variables {
  prefix = "ana"
}

run "bucket" {
  module {
    source = "./modules/bucket"
  }

  variables {
    deployment = "01234567"
  }

  assert {
    condition     = one(aws_s3_bucket_versioning.artefacts.versioning_configuration).status == "Enabled"
    error_message = "the bucket should be versioned"
  }
  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.artefacts.rule).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "the bucket should be encrypted"
  }
  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.artefacts.block_public_acls,
      aws_s3_bucket_public_access_block.artefacts.block_public_policy,
      aws_s3_bucket_public_access_block.artefacts.ignore_public_acls,
      aws_s3_bucket_public_access_block.artefacts.restrict_public_buckets,
    ])
    error_message = "the bucket should be closed to the public"
  }
  assert {
    condition     = one(jsondecode(aws_s3_bucket_policy.artefacts[0].policy).Statement).Condition.Bool["aws:SecureTransport"] == "false"
    error_message = "connections that are not encrypted should be refused"
  }
  assert {
    condition     = aws_s3_bucket.artefacts.bucket_prefix == "ana-01234567-"
    error_message = "the bucket's name should say what it belongs to"
  }
}

run "registry" {
  module {
    source = "./modules/registry"
  }

  assert {
    condition     = aws_ecr_repository.server.image_tag_mutability == "IMMUTABLE" && one(aws_ecr_repository.server.image_scanning_configuration).scan_on_push
    error_message = "tags should never move, and images be scanned"
  }
}

run "role" {
  module {
    source = "./modules/role"
  }

  variables {
    bucket_arn     = "arn:aws:s3:::ana-01234567-1"
    key_prefix     = "artefacts"
    repository_arn = "arn:aws:ecr:us-east-1:123456789012:repository/ana-server"
    endpoint_names = ["ana"]
  }

  assert {
    condition = toset(flatten([for s in jsondecode(aws_iam_role_policy.endpoint.policy).Statement : s.Resource])) == toset([
      "arn:aws:s3:::ana-01234567-1/artefacts/*",
      "arn:aws:s3:::ana-01234567-1",
      "arn:aws:ecr:us-east-1:123456789012:repository/ana-server",
      "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/Endpoints/ana:*",
      "*",
    ])
    error_message = "the role should reach this bucket's prefix, this repository and these logs"
  }
  assert {
    condition = toset([
      for s in jsondecode(aws_iam_role_policy.endpoint.policy).Statement : s.Action if contains(flatten([s.Resource]), "*")
    ]) == toset(["ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"])
    error_message = "only what AWS knows no names for may be allowed on everything"
  }
  assert {
    condition     = !anytrue([for a in flatten([for s in jsondecode(aws_iam_role_policy.endpoint.policy).Statement : s.Action]) : strcontains(a, "*")])
    error_message = "every action should be named"
  }
}
