# docker build -t volley .
# docker run --gpus all --ipc host -p 8000:8000 -v /models:/models:ro volley \
#     serve /models/Qwen3.6-27B --host 0.0.0.0 --device cuda --tensor-parallel-size 2
ARG CUDA=13.0.1
ARG UBUNTU=24.04

FROM nvidia/cuda:${CUDA}-devel-ubuntu${UBUNTU} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential ca-certificates curl \
    && rm -rf /var/lib/apt/lists/*
ARG RUST=1.94.0
ENV PATH=/root/.cargo/bin:$PATH CUDA_HOME=/usr/local/cuda
RUN curl --proto '=https' --tlsv1.2 -sSf -o /tmp/rustup-init.sh https://static.rust-lang.org/rustup/rustup-init.sh \
    && sh /tmp/rustup-init.sh -y --profile minimal --default-toolchain ${RUST} \
    && rm /tmp/rustup-init.sh
COPY . /volley
RUN /volley/docker/build.sh /image release --features cuda

# The runtime image brings cuBLASLt and NCCL; the driver's libcuda comes from the host.
FROM nvidia/cuda:${CUDA}-runtime-ubuntu${UBUNTU}
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin volley
COPY --from=build /image/volley /usr/local/bin/volley
USER volley
EXPOSE 8000
# Loading 54 GB from a cold disk takes minutes. /health fails when the engine stops or hangs.
HEALTHCHECK --start-period=10m --interval=10s --timeout=5s --retries=2 \
    CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8000/health"]
ENTRYPOINT ["volley"]
CMD ["serve", "demo", "--host", "0.0.0.0"]
