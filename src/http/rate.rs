//! The requests of each token are held below a rate.
//!
//! By token, not by address: many readers may stand behind one address, and one sender may have many.
//! A burst of as many requests as the rate allows in a second passes at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::MonotonicClock;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::problem::Problem;
use crate::access::scope::Caller;

/// How often tokens that were not used lately are forgotten.
const FORGET_EVERY: Duration = Duration::from_mins(1);

/// The id of a token; `None` is the admin token of the configuration.
type Token = Option<Uuid>;

type Limiter = RateLimiter<Token, HashMapStateStore<Token>, MonotonicClock>;

/// What the requests of each token are held to.
#[derive(Debug)]
pub(crate) struct Rates(Option<Limiter>);

impl Rates {
    /// So many requests a second for each token; `None`: as many as it likes.
    pub(crate) fn new(per_second: Option<NonZeroU32>) -> Self {
        let limiter = |rate| {
            Limiter::new(
                Quota::per_second(rate),
                HashMapStateStore::default(),
                MonotonicClock,
            )
        };
        Self(per_second.map(limiter))
    }

    /// Counts a request of `caller`. Tokens that are none are not remembered, so those who try some
    /// out cost no memory.
    ///
    /// # Errors
    /// It is one too many.
    pub(super) fn take(&self, caller: &Caller) -> Result<(), Problem> {
        let Some(limiter) = &self.0 else {
            return Ok(());
        };
        let taken = limiter.check_key(&caller.token);
        taken.map_err(|_| Problem::rate_limited())
    }

    /// Forgets tokens that are not used, until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(FORGET_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.forget(),
            }
        }
    }

    fn forget(&self) {
        if let Some(limiter) = &self.0 {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(token: Token) -> Caller {
        Caller {
            token,
            ..Caller::admin()
        }
    }

    #[test]
    fn each_token_has_a_rate_of_its_own() {
        let rates = Rates::new(NonZeroU32::new(3));
        for token in [None, Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2))] {
            let taken = (0..9).filter(|_| rates.take(&caller(token)).is_ok());
            // Time goes on while they are counted.
            assert!((3..=4).contains(&taken.count()), "{token:?}");
        }
        let unbounded = Rates::new(None);
        assert!((0..1000).all(|_| unbounded.take(&caller(None)).is_ok()));
    }

    #[test]
    fn tokens_that_are_not_used_are_forgotten() {
        // So many that each is back where it began by the time that the last is counted.
        let rates = Rates::new(NonZeroU32::new(1_000_000));
        for id in 0..10_000 {
            rates.take(&caller(Some(Uuid::from_u128(id)))).unwrap();
        }
        let kept = || rates.0.as_ref().unwrap().len();
        assert_eq!(kept(), 10_000);
        let began = std::time::Instant::now();
        while kept() > 0 {
            assert!(began.elapsed() < Duration::from_secs(10));
            rates.forget();
        }
    }
}
