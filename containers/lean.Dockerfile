# The lean image: one process on ONNX Runtime, and of a Linux system only what Python needs. Built by
#     fundoscope image build
# or, from the top of the repository and where a build can reach the package index, by
#     docker buildx build --provenance=false -f containers/lean.Dockerfile -t fundoscope:lean .
# Any glibc system with Python 3.11 and its venv module will do as BASE: nothing of it is kept but the interpreter, its
# standard library and the libraries these are linked to. For arm64 add --platform linux/arm64.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

# For a build without an index: --build-context wheels=FOLDER puts a folder of wheels in the place of this empty stage.
FROM scratch AS wheels

FROM ${BASE} AS build
# To find what podman and buildah keep of builds: podman image prune --filter label=fundoscope.stage=build
LABEL fundoscope.stage=build
WORKDIR /build
RUN python3 -m venv venv
COPY containers/build.txt containers/lean.txt ./
RUN --mount=type=bind,from=wheels,target=/wheels \
    if [ -n "$(ls /wheels)" ]; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; fi \
    && export PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_NO_DEPS=1 PIP_REQUIRE_HASHES=1 PIP_ONLY_BINARY=:all: \
    && venv/bin/pip install -r build.txt \
    && venv/bin/pip install -r lean.txt --target packages
COPY pyproject.toml README.md LICENSE source/
COPY src/ source/src/
RUN venv/bin/pip install --no-index --no-deps --no-build-isolation --no-compile --target fundoscope ./source
COPY containers/assemble.py containers/elf.py ./
RUN python3 assemble.py packages fundoscope /out

FROM scratch
# From the layer that changes most rarely to the one that changes with every release.
COPY --from=build /out/runtime/ /
COPY --from=build /out/packages/ /
COPY --from=build /out/fundoscope/ /
# One BLAS thread: the server's arithmetic is ONNX Runtime's, and NumPy would start a thread per core for nothing.
# ONNX Runtime reports to its makers unless told not to.
ENV LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1 OPENBLAS_NUM_THREADS=1 \
    ORT_DISABLE_TELEMETRY=1 FUNDOSCOPE_HOST=0.0.0.0
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      com.amazonaws.sagemaker.capabilities.multi-models=true \
      org.opencontainers.image.title="fundoscope lean" \
      org.opencontainers.image.description="Diabetic-retinopathy grading as a service; not a medical device" \
      org.opencontainers.image.licenses=Apache-2.0
WORKDIR /
EXPOSE 8080
# Exec form: `docker run IMAGE serve` is `fundoscope serve`, as process 1, so that SIGTERM reaches it.
ENTRYPOINT ["/usr/bin/fundoscope"]
CMD ["serve"]
