# Model, endpoint configuration, endpoint. A change of anything makes a model of another name, that a configuration of
# another name, and that reaches the endpoint; the old ones go once nothing uses them.

locals {
  variant = "grader"
  kind    = var.serverless == null ? "real-time" : "serverless"
  what = {
    image      = var.image
    model_data = var.model_data
    # With its digest, the server tells callers what it was started from; `fundoscope deploy verify` compares.
    environment = merge(
      { FUNDOSCOPE_PLATFORM = local.kind },
      var.environment,
      { FUNDOSCOPE_IMAGE = one(regex("@(sha256:[0-9a-f]{64})$", var.image)) },
    )
  }
}

resource "aws_sagemaker_model" "grader" {
  name               = "${var.prefix}-${substr(sha256(jsonencode(local.what)), 0, 16)}"
  execution_role_arn = var.role_arn

  # The server calls nobody. Serverless endpoints cannot be isolated.
  enable_network_isolation = local.kind == "real-time"

  primary_container {
    image          = local.what.image
    model_data_url = local.what.model_data
    environment    = local.what.environment
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_sagemaker_endpoint_configuration" "grader" {
  name_prefix = "${var.prefix}-"

  production_variants {
    variant_name           = local.variant
    model_name             = aws_sagemaker_model.grader.name
    instance_type          = one(var.real_time[*].instance_type)
    initial_instance_count = one(var.real_time[*].count)

    dynamic "serverless_config" {
      for_each = var.serverless[*]
      content {
        memory_size_in_mb       = serverless_config.value.memory_mb
        max_concurrency         = serverless_config.value.max_concurrency
        provisioned_concurrency = serverless_config.value.provisioned_concurrency > 0 ? serverless_config.value.provisioned_concurrency : null
      }
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

# A real-time endpoint cannot become serverless: a change of kind makes a new endpoint.
resource "terraform_data" "kind" {
  input = local.kind
}

resource "aws_sagemaker_endpoint" "grader" {
  name                 = var.prefix
  endpoint_config_name = aws_sagemaker_endpoint_configuration.grader.name

  lifecycle {
    replace_triggered_by = [terraform_data.kind]

    # Where the new configuration does not come up, SageMaker goes back to the old one, which Terraform would call a
    # success, and then remove. https://github.com/hashicorp/terraform-provider-aws/issues/46663
    postcondition {
      condition     = self.endpoint_config_name == aws_sagemaker_endpoint_configuration.grader.name
      error_message = "SageMaker went back to the former configuration."
    }
  }

  depends_on = [aws_cloudwatch_log_group.endpoint] # SageMaker would make one that never ends, and that nobody removes
}

resource "aws_cloudwatch_log_group" "endpoint" {
  name              = "/aws/sagemaker/Endpoints/${var.prefix}"
  retention_in_days = var.log_retention_days
}

resource "aws_appautoscaling_target" "instances" {
  count              = one(var.real_time[*].autoscaling) == null ? 0 : 1
  service_namespace  = "sagemaker"
  scalable_dimension = "sagemaker:variant:DesiredInstanceCount"
  resource_id        = "endpoint/${aws_sagemaker_endpoint.grader.name}/variant/${local.variant}"
  min_capacity       = var.real_time.autoscaling.min_count
  max_capacity       = var.real_time.autoscaling.max_count
}

resource "aws_appautoscaling_policy" "requests" {
  count              = length(aws_appautoscaling_target.instances)
  name               = "${var.prefix}-requests"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.instances[0].service_namespace
  scalable_dimension = aws_appautoscaling_target.instances[0].scalable_dimension
  resource_id        = aws_appautoscaling_target.instances[0].resource_id

  target_tracking_scaling_policy_configuration {
    target_value = var.real_time.autoscaling.requests_per_minute

    predefined_metric_specification {
      predefined_metric_type = "SageMakerVariantInvocationsPerInstance"
    }
  }
}

locals {
  alarms = merge(
    {
      errors = {
        metric      = "Invocation5XXErrors", statistic = "Sum", percentile = null, above = 0
        description = "The server failed on a request."
      }
      latency = {
        metric      = "ModelLatency", statistic = null, percentile = "p95", above = var.latency_alarm_ms * 1000 # microseconds
        description = "One request in twenty takes the model longer than ${var.latency_alarm_ms} ms."
      }
    },
    local.kind == "real-time" ? {} : {
      concurrency = {
        metric      = "ServerlessConcurrentExecutionsUtilization", statistic = "Maximum", percentile = null, above = 0.95
        description = "All places are taken, or nearly: above the maximum, requests are throttled and not queued."
      }
    },
  )
}

resource "aws_cloudwatch_metric_alarm" "endpoint" {
  for_each = local.alarms

  alarm_name          = "${var.prefix}-${each.key}"
  alarm_description   = each.value.description
  namespace           = "AWS/SageMaker"
  metric_name         = each.value.metric
  statistic           = each.value.statistic
  extended_statistic  = each.value.percentile
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.above
  period              = 300
  evaluation_periods  = 1
  treat_missing_data  = "notBreaching" # nobody asking is no fault
  alarm_actions       = compact([var.alarm_topic_arn])
  dimensions = {
    EndpointName = aws_sagemaker_endpoint.grader.name
    VariantName  = local.variant
  }
}
