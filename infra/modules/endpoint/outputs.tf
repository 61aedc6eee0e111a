output "name" {
  value = aws_sagemaker_endpoint.grader.name
}

output "config" {
  value = aws_sagemaker_endpoint_configuration.grader.name
}

output "model" {
  value = aws_sagemaker_model.grader.name
}

output "image" {
  value = var.image
}

output "model_data" {
  value = var.model_data
}

output "variant" {
  value = local.variant
}

output "alarms" {
  value = [for alarm in aws_cloudwatch_metric_alarm.endpoint : alarm.alarm_name]
}

output "autoscaled" {
  value = length(aws_appautoscaling_target.instances) > 0
}

output "environment" {
  value = aws_sagemaker_model.grader.primary_container[0].environment
}
