# What the endpoint's machines may do: read this bucket's artefacts and this repository's images, write these logs.

variable "prefix" {
  type = string
}

variable "bucket_arn" {
  type = string
}

variable "key_prefix" {
  description = "Only objects below it can be read."
  type        = string
}

variable "repository_arn" {
  type = string
}

variable "endpoint_names" {
  type = list(string)
}

data "aws_caller_identity" "here" {}
data "aws_partition" "here" {}
data "aws_region" "here" {}

locals {
  account = data.aws_caller_identity.here.account_id
  logs    = "arn:${data.aws_partition.here.partition}:logs:${data.aws_region.here.name}:${local.account}:log-group"
}

resource "aws_iam_role" "endpoint" {
  name_prefix = "${var.prefix}-endpoint-" # roles are shared by all regions of an account
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "sagemaker.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_iam_role_policy" "endpoint" {
  name = "endpoint"
  role = aws_iam_role.endpoint.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "ReadArtefacts"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "${var.bucket_arn}/${var.key_prefix}/*"
      },
      {
        Sid       = "ListArtefacts"
        Effect    = "Allow"
        Action    = "s3:ListBucket"
        Resource  = var.bucket_arn
        Condition = { StringLike = { "s3:prefix" = "${var.key_prefix}/*" } }
      },
      {
        Sid      = "PullImage"
        Effect   = "Allow"
        Action   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        Resource = var.repository_arn
      },
      {
        Sid      = "EnterRegistry"
        Effect   = "Allow"
        Action   = "ecr:GetAuthorizationToken"
        Resource = "*" # it takes no other: a token is for the registry, not for a repository
      },
      {
        Sid      = "WriteLogs"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
        Resource = [for name in var.endpoint_names : "${local.logs}:/aws/sagemaker/Endpoints/${name}:*"]
      },
      {
        Sid       = "WriteMetrics"
        Effect    = "Allow"
        Action    = "cloudwatch:PutMetricData"
        Resource  = "*" # metrics have no names of their own; the namespace stands in for one
        Condition = { StringEquals = { "cloudwatch:namespace" = "/aws/sagemaker/Endpoints" } }
      },
    ]
  })
}

# Known once the role may do what it must, so that no model is made before.
output "arn" {
  value      = aws_iam_role.endpoint.arn
  depends_on = [aws_iam_role_policy.endpoint]
}
