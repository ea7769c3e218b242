# The service as an image: `docker build .`, or `docker build --build-arg VARIANT=cuda .` for a GPU.
# Base images are pinned by version; docs/operations.md tells how to pin their digests.
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG VARIANT=cpu
# Where torch comes from; empty: PyTorch's own index for cpu, the default one, with CUDA, for cuda.
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/daband
# torch first and alone: it is nearly all of the image and changes least.
RUN case "$VARIANT" in \
      cpu) index=https://download.pytorch.org/whl/cpu ;; \
      cuda) index=https://pypi.org/simple ;; \
      *) echo "VARIANT is cpu or cuda" >&2; exit 2 ;; \
    esac \
    && /opt/daband/bin/pip install --no-deps --constraint constraints.txt --index-url "${TORCH_INDEX:-$index}" torch
RUN /opt/daband/bin/pip install --constraint constraints.txt hatchling
COPY pyproject.toml README.md LICENSE ./
COPY model ./model
COPY service ./service
COPY migrations ./migrations
COPY client/daband_client ./client/daband_client
COPY release/licences.py ./
# The licence texts of all that is shipped; a licence that is not known to fit fails the build.
RUN /opt/daband/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /src/dist . \
    && /opt/daband/bin/pip install --constraint constraints.txt "daband[otel] @ file://$(echo /src/dist/daband-*.whl)" \
    && /opt/daband/bin/python licences.py --extra otel --notices /opt/daband/THIRD_PARTY_NOTICES.txt \
    && /opt/daband/bin/pip uninstall --yes hatchling pip

FROM ${PYTHON_IMAGE} AS final
ARG VARIANT=cpu
# On a GPU, Triton builds the kernel of the UCB scores when a policy is placed there.
# hadolint ignore=DL3008
RUN if [ "$VARIANT" = cuda ]; then \
      apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
      && rm -rf /var/lib/apt/lists/*; \
    fi
LABEL org.opencontainers.image.title="daband" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Decision service for domain-adaptive contextual bandits"
RUN groupadd --system --gid 10001 daband \
    && useradd --system --uid 10001 --gid daband --no-create-home --home-dir /tmp --shell /usr/sbin/nologin daband \
    && install --directory --owner=daband --group=daband /data /spool /archive
COPY --from=build /opt/daband /opt/daband
# Nothing is written but to /data (the embedded database), /spool (uploads on their way), /archive and /tmp.
ENV PATH=/opt/daband/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    TMPDIR=/spool \
    MPLCONFIGDIR=/tmp/matplotlib \
    TRITON_CACHE_DIR=/data/.triton \
    DABAND_DATA_DIR=/data \
    DABAND_LOG_FORMAT=json
WORKDIR /data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["daband", "serve", "--host", "0.0.0.0", "--port", "8000"]
