//! Names for visitors who bring none: a hash that tells one reader's clicks from another's for a
//! day, and nothing else.
//!
//! **Promises.** The name is made of the book, the address, the user agent and a random salt. The
//! salt changes at midnight, UTC, and is removed the day after, from the table as from this process;
//! then nobody can find out whose name it was, or whether yesterday's reader came back. All processes
//! share the salt of a day, so they make the same names. The address is stored nowhere.
//!
//! A name is never worth a click: where the salt cannot be had in time, there is none.
//!
//! This module owns the table `visitor_salts`.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use sqlx::{PgExecutor, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::telemetry;
use crate::time::Timestamp;

const DAY_MS: i64 = 24 * 3_600_000;

/// For how long after its day a salt stays: clocks of processes differ, and the last clicks of a day
/// are still on their way.
const STAYS_MS: i64 = 3_600_000;

const LOOK_EVERY: Duration = Duration::from_mins(5);

/// How long a click waits for the day's salt.
const PATIENCE: Duration = Duration::from_millis(500);

/// After a failure, how long no click waits.
const PAUSE: Duration = Duration::from_secs(1);

/// Bytes of a hash that make the name: too many for two readers to share one.
const NAME_BYTES: usize = 16;

/// The random part of all names of a day.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Salt {
    /// Days since the epoch, UTC.
    day: i64,
    bits: [u8; 32],
}

/// Makes names.
#[derive(Debug)]
pub struct Visitors {
    pool: PgPool,
    state: Mutex<State>,
    /// Held by the one who reads, while the others wait for what it finds.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    salt: Option<Salt>,
    failed_at: Option<Instant>,
}

/// Who reads what, as far as a request tells.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Names of one book are no names of another.
    pub book: Uuid,
    /// Used here, and forgotten.
    pub address: IpAddr,
    /// As it was sent; empty if it was not.
    pub user_agent: &'a [u8],
}

fn day_of(now: Timestamp) -> i64 {
    now.millis().div_euclid(DAY_MS)
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Salt");
        shown.field("day", &self.day).finish_non_exhaustive()
    }
}

impl Salt {
    fn name(&self, reader: Reader<'_>) -> String {
        let address = match reader.address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        // All but the last part have a length of their own, so no two readers give the same bytes.
        let hash = Sha256::new()
            .chain_update(self.bits)
            .chain_update(reader.book)
            .chain_update(address.octets())
            .chain_update(reader.user_agent)
            .finalize();
        URL_SAFE_NO_PAD.encode(&hash[..NAME_BYTES])
    }
}

impl Visitors {
    /// Salts are shared through `pool`.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of `reader` on the day of `now`; `None` where the day's salt is not known and the
    /// database does not tell it in time.
    pub async fn name(&self, reader: Reader<'_>, now: Timestamp) -> Option<String> {
        let day = day_of(now);
        let salt = match self.known(day) {
            Some(salt) => salt,
            None if self.failed_lately() => return None,
            None => self.read(day).await?,
        };
        Some(salt.name(reader))
    }

    fn known(&self, day: i64) -> Option<Salt> {
        self.state().salt.filter(|salt| salt.day == day)
    }

    fn failed_lately(&self) -> bool {
        self.state()
            .failed_at
            .is_some_and(|at| at.elapsed() < PAUSE)
    }

    async fn read(&self, day: i64) -> Option<Salt> {
        let reading = async {
            let _turn = self.reading.lock().await;
            match self.known(day) {
                Some(salt) => Ok(salt),
                None => salt_of(&self.pool, day).await,
            }
        };
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(salt)) => {
                *self.state() = State {
                    salt: Some(salt),
                    failed_at: None,
                };
                return Some(salt);
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %telemetry::chain(&error), "clicks have no visitor: the day's salt could not be read");
            }
            Err(_) => tracing::warn!("clicks have no visitor: the day's salt came too late"),
        }
        self.state().failed_at = Some(Instant::now());
        None
    }

    /// Removes what is over, whether or not there are clicks, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.forget(Timestamp::now()).await {
                tracing::warn!(error = %telemetry::chain(&error), "salts of visitors that are over could not be removed; they go later");
            }
        }
    }

    /// Removes the salts of the days that are over at `now`: here at once, in the table after an hour,
    /// when slower clocks have come round too.
    ///
    /// # Errors
    /// What the database says.
    pub async fn forget(&self, now: Timestamp) -> Result<(), sqlx::Error> {
        let day = day_of(now);
        {
            let mut state = self.state();
            state.salt = state.salt.filter(|salt| salt.day >= day);
        }
        let first_kept = day_of(Timestamp::saturating_from_millis(now.millis() - STAYS_MS));
        delete_before(&self.pool, first_kept).await
    }
}

/// The salt of `day`, made by whoever needs it first.
async fn salt_of(pool: &PgPool, day: i64) -> Result<Salt, sqlx::Error> {
    let made: [u8; 32] = rand::random();
    sqlx::query!(
        "INSERT INTO visitor_salts (day, salt) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        day,
        made.as_slice(),
    )
    .execute(pool)
    .await?;
    let stored = sqlx::query_scalar!("SELECT salt FROM visitor_salts WHERE day = $1", day)
        .fetch_one(pool)
        .await?;
    let bits = stored.try_into();
    let bits = bits.map_err(|_| sqlx::Error::Decode("a salt has 32 bytes".into()))?;
    Ok(Salt { day, bits })
}

async fn delete_before(db: impl PgExecutor<'_>, day: i64) -> Result<(), sqlx::Error> {
    sqlx::query!("DELETE FROM visitor_salts WHERE day < $1", day)
        .execute(db)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOK: Uuid = Uuid::from_u128(1);

    fn name(bits: u8, book: Uuid, address: &str, user_agent: &str) -> String {
        let reader = Reader {
            book,
            address: address.parse().unwrap(),
            user_agent: user_agent.as_bytes(),
        };
        let bits = [bits; 32];
        Salt { day: 0, bits }.name(reader)
    }

    #[test]
    fn a_name_is_that_of_one_reader_of_one_book_on_one_day() {
        let name_of_one = name(1, BOOK, "192.0.2.1", "Firefox");
        assert_eq!(name_of_one, name(1, BOOK, "192.0.2.1", "Firefox"));
        assert_eq!(name_of_one, name(1, BOOK, "::ffff:192.0.2.1", "Firefox"));
        assert_eq!(name_of_one.len(), 22);
        for other in [
            name(2, BOOK, "192.0.2.1", "Firefox"),
            name(1, Uuid::from_u128(2), "192.0.2.1", "Firefox"),
            name(1, BOOK, "192.0.2.2", "Firefox"),
            name(1, BOOK, "2001:db8::1", "Firefox"),
            name(1, BOOK, "192.0.2.1", "Firefox/2"),
            name(1, BOOK, "192.0.2.1", ""),
        ] {
            assert_ne!(name_of_one, other);
        }
    }

    #[test]
    fn days_change_at_midnight_before_the_epoch_too() {
        let day = |millis| day_of(Timestamp::from_millis(millis).unwrap());
        assert_eq!(
            (day(-1), day(0), day(DAY_MS - 1), day(DAY_MS)),
            (-1, 0, 0, 1)
        );
    }
}
