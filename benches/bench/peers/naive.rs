//! What one would write first: a transaction for each click, over a pool of connections.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use pagetide::db;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

use super::click::{Click, Taken};
use crate::Error;

/// How many connections; what a pool of sqlx has by itself. The book's row is held from its update
/// to the commit, so more would wait there.
const CONNECTIONS: u32 = 10;

/// How long a window is.
const WINDOW_MS: i64 = 10_000;

/// How many frames a book keeps.
const FRAMES: i64 = 512;

/// At the same address as ours, with tables of its own in the same database.
pub(crate) async fn router(database: &str) -> Result<Router, Error> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
    let pool = pool.connect(database).await?;
    let schema = sqlx::raw_sql(
        "DROP SCHEMA IF EXISTS naive CASCADE;
         CREATE SCHEMA naive;
         CREATE TABLE naive.books (slug text PRIMARY KEY, position bigint NOT NULL);
         CREATE TABLE naive.clicks (
             slug text NOT NULL, id uuid NOT NULL, at_ms bigint NOT NULL, page text NOT NULL,
             visitor text, referrer text, source text, PRIMARY KEY (slug, id));
         CREATE TABLE naive.windows (
             slug text NOT NULL, start_ms bigint NOT NULL, page text NOT NULL,
             clicks bigint NOT NULL, PRIMARY KEY (slug, start_ms, page));
         CREATE TABLE naive.frames (
             slug text NOT NULL, position bigint NOT NULL, data text NOT NULL,
             PRIMARY KEY (slug, position));",
    );
    schema.execute(&pool).await?;
    Ok(Router::new()
        .route("/v1/books/{book}/clicks", post(take))
        .with_state(pool))
}

async fn take(
    State(pool): State<PgPool>,
    Path(slug): Path<String>,
    Json(click): Json<Click>,
) -> Result<Json<Taken>, StatusCode> {
    match commit(&pool, &slug, click).await {
        Ok(()) => Ok(Json(Taken { ok: true })),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn commit(pool: &PgPool, slug: &str, click: Click) -> Result<(), Error> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let at_ms = click.at.map_or_else(|| i64::try_from(now_ms), Ok)?;
    let start_ms = at_ms - at_ms.rem_euclid(WINDOW_MS);
    let mut tx = db::begin(pool, db::WRITE).await?;
    sqlx::query(
        "INSERT INTO naive.clicks (slug, id, at_ms, page, visitor, referrer, source)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(slug)
    .bind(Uuid::now_v7())
    .bind(at_ms)
    .bind(&click.page)
    .bind(click.visitor)
    .bind(click.referrer)
    .bind(click.source)
    .execute(&mut *tx)
    .await?;
    let clicks: i64 = sqlx::query_scalar(
        "INSERT INTO naive.windows AS w (slug, start_ms, page, clicks) VALUES ($1, $2, $3, 1)
         ON CONFLICT (slug, start_ms, page) DO UPDATE SET clicks = w.clicks + 1
         RETURNING clicks",
    )
    .bind(slug)
    .bind(start_ms)
    .bind(&click.page)
    .fetch_one(&mut *tx)
    .await?;
    let position: i64 = sqlx::query_scalar(
        "INSERT INTO naive.books AS b (slug, position) VALUES ($1, 1)
         ON CONFLICT (slug) DO UPDATE SET position = b.position + 1
         RETURNING position",
    )
    .bind(slug)
    .fetch_one(&mut *tx)
    .await?;
    let data = json!({"position": position, "start_ms": start_ms, "values": {click.page: clicks}});
    sqlx::query("INSERT INTO naive.frames (slug, position, data) VALUES ($1, $2, $3)")
        .bind(slug)
        .bind(position)
        .bind(data.to_string())
        .execute(&mut *tx)
        .await?;
    sqlx::query("DELETE FROM naive.frames WHERE slug = $1 AND position <= $2")
        .bind(slug)
        .bind(position - FRAMES)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
