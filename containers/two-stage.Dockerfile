# The thesis's second image (its Table 5.2, "two-step build": 923.99 MB compressed, 3.32 GB on disk), reconstructed in
# today's versions: the same packages as in one-stage.Dockerfile, without what it took to install them.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM scratch AS wheels

FROM ${BASE} AS build
LABEL fundoscope.stage=build
WORKDIR /opt/program
COPY containers/full.txt ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    if [ -n "$(ls /wheels)" ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; fi \
    && python3 -m venv venv \
    && venv/bin/pip install --no-cache-dir --require-hashes --only-binary=:all: -r full.txt
COPY pyproject.toml README.md LICENSE source/
COPY src/ source/src/
RUN venv/bin/pip install --no-index --no-deps --no-build-isolation ./source

FROM ${BASE}
# Not pinned, as published.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates nginx-light wget \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/program
COPY --from=build /opt/program/venv/ venv/
# What `docker run IMAGE serve` runs; exec, so that SIGTERM reaches the server.
RUN printf '#!/bin/sh\nexec fundoscope serve --stack published "$@"\n' > /usr/local/bin/serve \
    && chmod 755 /usr/local/bin/serve
ENV PATH=/opt/program/venv/bin:$PATH PYTHONUNBUFFERED=1 FUNDOSCOPE_HOST=0.0.0.0
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      org.opencontainers.image.title="fundoscope two-stage"
EXPOSE 8080
CMD ["serve"]
