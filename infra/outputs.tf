output "bucket" {
  value = module.bucket.name
}

output "repository" {
  value = module.registry.name
}

output "repository_url" {
  value = module.registry.url
}

output "role_arn" {
  value = module.role.arn
}

output "endpoint" {
  description = "Names and digests of what was asked for; null where there is no endpoint."
  value = var.endpoint == null ? null : {
    name            = module.endpoint[0].name
    config          = module.endpoint[0].config
    model           = module.endpoint[0].model
    image           = module.endpoint[0].image
    model_data      = module.endpoint[0].model_data
    variant         = module.endpoint[0].variant
    alarms          = module.endpoint[0].alarms
    autoscaled      = module.endpoint[0].autoscaled
    environment     = module.endpoint[0].environment
    artefact_digest = var.endpoint.artefact_digest
    image_digest    = var.endpoint.image_digest
  }
}
