# `docker build --target cpu .` is an image for every process of the bench. `--target cuda` is for machines with NVIDIA GPUs
# that train, without a web stack and the database; `--target api` serves REST and pages alone, without torch, Ray and MLflow.

# Of the image that everything begins with: `docker build --build-arg PYTHON_DIGEST=sha256:…`; docs/deployment.md has how
# it is found. There is no default: a tag alone names other bytes tomorrow.
ARG PYTHON_DIGEST
FROM python:3.11.13-slim-bookworm@${PYTHON_DIGEST} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/venv/bin:$PATH
# g++: torch.compile writes C++ for CPUs. libgomp1: torch's threads.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libgomp1 \
    && rm -rf /var/lib/apt/lists/*

FROM base AS build
RUN python -m venv /opt/venv
WORKDIR /opt/adapm-bench
COPY constraints.txt ./

FROM build AS build-cpu
RUN pip install --no-cache-dir --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu torch

FROM build AS build-cuda
RUN pip install --no-cache-dir --constraint constraints.txt torch

# What the bench itself needs is installed onto either torch; a change of our code builds from here on only.
FROM build-cpu AS installed-cpu
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt '.[all,postgres,s3]'

FROM build-cuda AS installed-cuda
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt '.[worker,low-bit,s3]'

FROM build AS installed-api
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt '.[api,postgres,s3]'

FROM base AS run
ARG COMMIT=unknown
ENV ADAPM_BENCH_COMMIT=$COMMIT ADAPM_BENCH_DATA_FOLDER=/data HOME=/home/bench \
    RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true
RUN useradd --uid 10001 --create-home bench && install --directory --owner=bench --group=bench /data /artifacts
WORKDIR /home/bench
USER bench
CMD ["adapm-bench", "--help"]

FROM run AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=installed-cuda /opt/venv /opt/venv

FROM run AS api
COPY --from=installed-api /opt/venv /opt/venv

FROM run AS cpu
COPY --from=installed-cpu /opt/venv /opt/venv
