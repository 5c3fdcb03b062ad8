# syntax=docker/dockerfile:1
# CPU by default. GPU: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/ehr-d3pm
ENV PATH=/opt/ehr-d3pm/bin:$PATH
WORKDIR /src
# torch alone first: this layer is gigabytes and changes with the pinned version only
COPY constraints.txt ./
RUN pip install --index-url "${TORCH_INDEX}" -c constraints.txt torch
COPY requirements-runtime.lock ./
RUN pip install --require-hashes --no-deps -r requirements-runtime.lock
COPY pyproject.toml README.md ./
COPY app app
COPY client client
COPY ehr ehr
COPY model_store model_store
COPY runtime runtime
COPY worker worker
RUN pip install --no-deps --no-build-isolation ./client . && pip check

FROM python:${PYTHON}-slim
# OpenMP's runtime, which some numerical wheels expect from the system
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /home/ehr ehr \
    && install -d -o ehr -g ehr /data
COPY --from=build /opt/ehr-d3pm /opt/ehr-d3pm
ENV PATH=/opt/ehr-d3pm/bin:$PATH PYTHONUNBUFFERED=1 DATA_DIR=/data HOST=0.0.0.0 PORT=8000
USER 10001:10001
WORKDIR /home/ehr
VOLUME /data
EXPOSE 8000
CMD ["ehr-d3pm", "api"]
