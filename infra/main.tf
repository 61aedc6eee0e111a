# An artefact behind a SageMaker endpoint. Variables arrive in one file, terraform.tfvars.json, which
# `fundoscope deploy` writes; it is applied twice the first time: without an endpoint, so that there is a bucket and a
# registry to bring the artefact and the image to, and then with it.

locals {
  elsewhere = var.aws_endpoint != null # an emulator of AWS, not AWS
}

provider "aws" {
  region                      = var.region
  s3_use_path_style           = local.elsewhere
  skip_credentials_validation = local.elsewhere
  skip_metadata_api_check     = local.elsewhere
  skip_requesting_account_id  = local.elsewhere

  dynamic "endpoints" {
    for_each = local.elsewhere ? [var.aws_endpoint] : []
    content {
      appautoscaling = endpoints.value
      cloudwatch     = endpoints.value
      ecr            = endpoints.value
      iam            = endpoints.value
      logs           = endpoints.value
      s3             = endpoints.value
      sagemaker      = endpoints.value
      sts            = endpoints.value
    }
  }

  default_tags {
    tags = { fundoscope = var.prefix, fundoscope-deployment = var.deployment }
  }
}

module "bucket" {
  source     = "./modules/bucket"
  prefix     = var.prefix
  deployment = var.deployment
  tls_only   = !local.elsewhere
}

module "registry" {
  source = "./modules/registry"
  prefix = var.prefix
}

module "role" {
  source         = "./modules/role"
  prefix         = var.prefix
  bucket_arn     = module.bucket.arn
  key_prefix     = "artefacts"
  repository_arn = module.registry.arn
  endpoint_names = [var.prefix]
}

module "endpoint" {
  source = "./modules/endpoint"
  count  = var.endpoint == null ? 0 : 1

  prefix             = var.prefix
  role_arn           = module.role.arn
  image              = "${module.registry.url}@${var.endpoint.image_digest}"
  model_data         = "s3://${module.bucket.name}/artefacts/${var.endpoint.artefact_digest}/model.tar.gz"
  serverless         = var.endpoint.serverless
  real_time          = var.endpoint.real_time
  environment        = var.endpoint.environment
  latency_alarm_ms   = var.endpoint.latency_alarm_ms
  alarm_topic_arn    = var.endpoint.alarm_topic_arn
  log_retention_days = var.endpoint.log_retention_days
}
