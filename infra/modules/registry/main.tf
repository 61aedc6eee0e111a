# Where images lie. Endpoints name them by digest; tags are for people, and never move.

variable "prefix" {
  type = string
}

resource "aws_ecr_repository" "server" {
  name                 = "${var.prefix}-server"
  image_tag_mutability = "IMMUTABLE"
  force_delete         = true

  image_scanning_configuration {
    scan_on_push = true
  }

  encryption_configuration {
    encryption_type = "AES256"
  }
}

output "name" {
  value = aws_ecr_repository.server.name
}

output "arn" {
  value = aws_ecr_repository.server.arn
}

output "url" {
  value = aws_ecr_repository.server.repository_url
}
