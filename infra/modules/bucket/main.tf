# Where artefacts lie, each under its digest.

variable "prefix" {
  type = string
}

variable "deployment" {
  type = string
}

variable "tls_only" {
  description = "Refuse connections that are not encrypted; an emulator's are not."
  type        = bool
  default     = true
}

# The end of the name is drawn: names of buckets are shared by all accounts of the world. What it belongs to is in the
# name because tags come later, and Terraform may be killed in between.
resource "aws_s3_bucket" "artefacts" {
  bucket_prefix = "${var.prefix}-${var.deployment}-"
  force_destroy = true # `destroy` leaves nothing; artefacts are copies of what is on the disk of who deployed them
}

resource "aws_s3_bucket_versioning" "artefacts" {
  bucket = aws_s3_bucket.artefacts.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "artefacts" {
  bucket = aws_s3_bucket.artefacts.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "artefacts" {
  bucket                  = aws_s3_bucket.artefacts.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_policy" "artefacts" {
  count  = var.tls_only ? 1 : 0
  bucket = aws_s3_bucket.artefacts.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "EncryptedConnectionsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.artefacts.arn, "${aws_s3_bucket.artefacts.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  depends_on = [aws_s3_bucket_public_access_block.artefacts]
}

output "name" {
  value = aws_s3_bucket.artefacts.id
}

output "arn" {
  value = aws_s3_bucket.artefacts.arn
}
