FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
COPY .sqlx .sqlx
COPY migrations migrations
COPY src src
# The manifest names the tests; a build of the program does not need them.
RUN mkdir -p tests/it && touch tests/it/main.rs
ENV SQLX_OFFLINE=true
RUN cargo build --release --locked --bin pagetide

FROM debian:bookworm-slim
# For the certificates of a database that speaks TLS.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/pagetide pagetide
COPY --from=build /build/target/release/pagetide /usr/local/bin/pagetide
USER pagetide
ENV PAGETIDE_LISTEN=0.0.0.0:8080 PAGETIDE_DATA_DIR=/var/lib/pagetide
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["pagetide"]
CMD ["serve"]
