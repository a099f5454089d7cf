# The manager. For those without a container daemon: make images.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends musl-tools && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The host's architecture, linked statically, so that the image needs nothing but the program.
RUN folder="$(hack/build-static capmaas-manager | tail -n 1)" && cp "$folder/capmaas-manager" /capmaas-manager

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /capmaas-manager /capmaas-manager
USER 65532:65532
ENTRYPOINT ["/capmaas-manager"]
