//! Measuring several things in turns, so that whatever else the machine does meets all of them.

use std::time::Duration;

use crate::Error;
use crate::context::Context;
use crate::report::{Samples, say};

/// One turn to warm up, then as many as the context says. `turn` measures each of `N` things for the
/// time that it is given; what they came to is told as it comes.
pub(crate) async fn in_turns<const N: usize>(
    context: &Context,
    mut turn: impl AsyncFnMut(Duration) -> Result<[f64; N], Error>,
) -> Result<[Samples; N], Error> {
    turn(context.warm_up).await?;
    let mut samples: [Samples; N] = std::array::from_fn(|_| Samples::default());
    for _ in 0..context.runs {
        let measured = turn(context.run).await?;
        say(&format!("    {measured:.1?}"));
        for (samples, measured) in samples.iter_mut().zip(measured) {
            samples.0.push(measured);
        }
    }
    Ok(samples)
}
