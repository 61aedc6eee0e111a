# The thesis's first image (its Table 5.2, "no optimisation": 1798.27 MB compressed, 4.97 GB on disk), reconstructed in
# today's versions from its text, since that file was not published: everything in one stage, compilers and what the
# package manager downloaded left behind. Repaired so that it serves: the model from /opt/ml/model, port 8080, exec form.
ARG BASE=docker.io/library/python:3.11-bookworm

FROM scratch AS wheels

FROM ${BASE}
WORKDIR /opt/program
# Not pinned, as published.
# hadolint ignore=DL3008,DL3009
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential ca-certificates nginx-light wget
COPY containers/full.txt ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    if [ -n "$(ls /wheels)" ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; fi \
    && python3 -m venv venv \
    && venv/bin/pip download --require-hashes --only-binary=:all: -r full.txt -d downloaded \
    && venv/bin/pip install --no-index --find-links=downloaded -r full.txt
COPY pyproject.toml README.md LICENSE source/
COPY src/ source/src/
RUN venv/bin/pip install --no-index --no-deps --no-build-isolation ./source
# What `docker run IMAGE serve` runs; exec, so that SIGTERM reaches the server.
RUN printf '#!/bin/sh\nexec fundoscope serve --stack published "$@"\n' > /usr/local/bin/serve \
    && chmod 755 /usr/local/bin/serve
ENV PATH=/opt/program/venv/bin:$PATH PYTHONUNBUFFERED=1 FUNDOSCOPE_HOST=0.0.0.0
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      org.opencontainers.image.title="fundoscope one-stage"
EXPOSE 8080
CMD ["serve"]
