variable "prefix" {
  description = "What every name begins with: two deployments with different prefixes share nothing."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.prefix))
    error_message = "The prefix has 3 to 24 small letters, digits and hyphens, and begins with a letter."
  }
}

variable "region" {
  description = "Where all of it is, such as us-east-1."
  type        = string
}

variable "deployment" {
  description = "Drawn once for each deployment, and a tag of all its parts: by it `destroy` knows what is its own."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{8}$", var.deployment))
    error_message = "A deployment is told from others by eight hexadecimal digits."
  }
}

variable "aws_endpoint" {
  description = "Address of an emulator of AWS; null for AWS."
  type        = string
  default     = null
}

variable "endpoint" {
  description = "What answers; null for the bucket, the registry and the role alone. Times in the units of their names."
  type = object({
    artefact_digest = string
    image_digest    = string
    architecture    = string
    serverless = optional(object({
      memory_mb               = number
      max_concurrency         = number
      provisioned_concurrency = optional(number, 0)
    }))
    real_time = optional(object({
      instance_type = string
      count         = number
      autoscaling = optional(object({
        min_count           = number
        max_count           = number
        requests_per_minute = number
      }))
    }))
    environment        = optional(map(string), {})
    latency_alarm_ms   = optional(number, 2000)
    alarm_topic_arn    = optional(string)
    log_retention_days = optional(number, 30)
  })
  default = null

  validation {
    condition     = var.endpoint == null ? true : (var.endpoint.serverless == null) != (var.endpoint.real_time == null)
    error_message = "An endpoint is serverless or real-time: say one of the two."
  }

  validation {
    condition = var.endpoint == null ? true : (
      can(regex("^sha256:[0-9a-f]{64}$", var.endpoint.image_digest)) && can(regex("^[0-9a-f]{64}$", var.endpoint.artefact_digest))
    )
    error_message = "Images and artefacts are named by their sha256."
  }

  validation {
    # Graviton's families have a g after their number: m6g, c7gn; g4dn and g5 have not. Serverless offers no choice.
    condition = var.endpoint == null ? true : var.endpoint.architecture == (
      can(regex("^ml\\.[a-z]+[0-9]+g[a-z]*\\.", var.endpoint.real_time.instance_type)) ? "arm64" : "x86-64"
    )
    error_message = "The image is for another architecture than the machine."
  }
}
