# docker build -t breakeven .
# docker run --gpus all -p 127.0.0.1:8501:8501 -v breakeven-data:/data \
#   --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges breakeven
FROM python:3.13-slim

# Inductor and Triton compile at run time, so the compiler stays in the image.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 breakeven \
 && install -d -o breakeven /data

WORKDIR /app
COPY requirements.lock .
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .

USER breakeven
# Inside a container all addresses have to be listened on; then others may look. Who opens the secret
# link of `docker logs` acts.
ENV BREAKEVEN_DATA=/data \
    BREAKEVEN_HOST=0.0.0.0 \
    HF_HOME=/data/huggingface \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
VOLUME /data
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8501/_stcore/health', timeout=4)"]
CMD ["python", "serve.py"]
