"""`python tests/deploy/register_image.py ADDRESS REPOSITORY`: an image of nothing, as if pushed; prints its digest."""

import json
import sys

import boto3

if __name__ == "__main__":
    address, repository = sys.argv[1:]
    media_type = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = {"schemaVersion": 2, "mediaType": media_type, "config": {"digest": "sha256:" + "0" * 64}, "layers": []}
    ecr = boto3.client("ecr", region_name="us-east-1", endpoint_url=address)
    put = ecr.put_image(repositoryName=repository, imageManifest=json.dumps(manifest), imageTag="nothing")
    print(put["image"]["imageId"]["imageDigest"])
