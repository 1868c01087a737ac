//! Load at a steady pace, however fast it is answered.

use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::{Instant, MissedTickBehavior};

use crate::Error;
use crate::http::Client;

/// Calls `one` with a client `rate` times a second as long as it `goes_on`; a client whose turn comes
/// while it still waits for an answer leaves it out.
pub(crate) async fn steadily(
    clients: &mut [Client],
    rate: f64,
    goes_on: impl Fn() -> bool,
    one: impl AsyncFn(&mut Client) -> Result<(), Error>,
) -> Result<(), Error> {
    let begin = Instant::now();
    let spacing = Duration::from_secs_f64(1.0 / rate);
    let number = u32::try_from(clients.len())?;
    let (one, goes_on) = (&one, &goes_on);
    let each = clients.iter_mut().zip(0..number).map(|(client, place)| {
        let mut turns = tokio::time::interval_at(begin + spacing * place, spacing * number);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        async move {
            loop {
                turns.tick().await;
                if !goes_on() {
                    return Ok::<(), Error>(());
                }
                one(client).await?;
            }
        }
    });
    try_join_all(each).await?;
    Ok(())
}
