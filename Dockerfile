# The program in an image of its own:
#   docker build --tag lra .
#   docker run --rm --volume "$PWD/runs:/home/lra/runs" --volume lra-data:/data lra run --task listops --model performer

FROM rust:1.95-slim-bookworm AS build
# Every record names the commit that the program was built from.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends git \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --profile dist --locked -p lra

FROM debian:bookworm-slim
# Downloads trust the system's certificates.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 1000 lra \
  && install --directory --owner lra --group lra /data /home/lra/runs
COPY --from=build /source/target/dist/lra /usr/local/bin/lra
USER lra
WORKDIR /home/lra
ENV LRA_DATA=/data
VOLUME ["/data", "/home/lra/runs"]
ENTRYPOINT ["lra"]
CMD ["--help"]
