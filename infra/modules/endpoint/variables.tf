variable "prefix" {
  description = "The endpoint's name, and what the names of the rest begin with."
  type        = string
}

variable "role_arn" {
  type = string
}

variable "image" {
  description = "By digest: repository@sha256:…"
  type        = string
}

variable "model_data" {
  description = "Address of model.tar.gz."
  type        = string
}

variable "serverless" {
  type = object({
    memory_mb               = number
    max_concurrency         = number
    provisioned_concurrency = number
  })
  default = null
}

variable "real_time" {
  type = object({
    instance_type = string
    count         = number
    autoscaling = object({
      min_count           = number
      max_count           = number
      requests_per_minute = number
    })
  })
  default = null
}

variable "environment" {
  type    = map(string)
  default = {}
}

variable "latency_alarm_ms" {
  description = "An alarm where the 95th percentile of the model's latency is above it."
  type        = number
  default     = 2000
}

variable "alarm_topic_arn" {
  description = "Whom alarms tell; null: they only change colour."
  type        = string
  default     = null
}

variable "log_retention_days" {
  type    = number
  default = 30
}
