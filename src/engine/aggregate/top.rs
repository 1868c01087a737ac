//! `top`: the most frequent items.
//!
//! A summary of Misra and Gries ("Finding repeated elements", 1982), combined as in Agarwal and
//! others, "Mergeable summaries" (2012): counters for some of the items; when there are too many,
//! all are lowered by the same number, such that those that reach 0 leave enough room.
//!
//! It is exact while there are no more than 256 different items with no more than 32,768 bytes
//! of text. Beyond, a count is never too high, and it is too low by at most n/257, of n clicks,
//! where items have up to 128 bytes, and by at most n/17 where they all have 2,048, the longest
//! there are. An item with more clicks than that is not missed.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Aggregate, Sample, TopItem, Value};
use crate::rollup::Item;

/// How many items are shown.
const SHOWN: usize = 10;
/// Most items that are counted.
const MAX_ITEMS: usize = 256;
/// Most bytes of text that they have together.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// Ends a stored item: UTF-8 has no such byte.
const END: u8 = 0xff;

/// The most frequent items. Where it is not exact, how the clicks were cut into parts may show in
/// the counts, within the error that is stated above.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Top {
    /// How many clicks were taken in.
    clicks: i64,
    /// By how much a count can be too low; 0 while all is exact.
    lowered: i64,
    /// Each greater than 0.
    counts: BTreeMap<Box<str>, i64>,
    /// The bytes of all items together.
    text_bytes: usize,
}

impl Top {
    fn count(&mut self, item: &str, clicks: i64) {
        if let Some(count) = self.counts.get_mut(item) {
            *count = count.saturating_add(clicks);
        } else {
            self.text_bytes += item.len();
            self.counts.insert(item.into(), clicks);
        }
    }

    fn fits(items: usize, text_bytes: usize) -> bool {
        items <= MAX_ITEMS && text_bytes <= MAX_TEXT_BYTES
    }

    /// Lowers all counts by that of the most frequent item for which there is no room. This item
    /// and all that are as frequent or more so lose as many clicks, and they are more than have
    /// room: that is where the bound comes from.
    fn make_room(&mut self) {
        if Self::fits(self.counts.len(), self.text_bytes) {
            return;
        }
        let mut by_count: Vec<(i64, usize)> = (self.counts.iter())
            .map(|(item, &count)| (count, item.len()))
            .collect();
        by_count.sort_unstable_by_key(|&(count, _)| Reverse(count));
        let mut text_bytes = 0;
        let first_without_room = (1..).zip(by_count).find(|&(items, (_, len))| {
            text_bytes += len;
            !Self::fits(items, text_bytes)
        });
        let Some((_, (less, _))) = first_without_room else {
            return;
        };
        self.lowered = self.lowered.saturating_add(less);
        self.counts.retain(|_, count| {
            *count -= less;
            *count > 0
        });
        self.text_bytes = self.counts.keys().map(|item| item.len()).sum();
    }
}

impl Aggregate for Top {
    const VERSION: u8 = 1;

    fn add(&mut self, sample: &Sample<'_>) {
        let item = match &sample.item {
            Item::Text(text) => Cow::Borrowed(&**text),
            Item::Number(number) => Value::Decimal(Some(number.0.into())).to_string().into(),
            // A rollup of the click itself cannot be made with this aggregate.
            Item::Click => return,
        };
        self.clicks = self.clicks.saturating_add(1);
        self.count(&item, 1);
        self.make_room();
    }

    fn combine(&mut self, other: &Self) {
        self.clicks = self.clicks.saturating_add(other.clicks);
        self.lowered = self.lowered.saturating_add(other.lowered);
        for (item, &count) in &other.counts {
            self.count(item, count);
        }
        self.make_room();
    }

    /// Items that are equally frequent are in the order of their names.
    fn value(&self) -> Value {
        let mut items: Vec<_> = self.counts.iter().collect();
        items.sort_by_key(|&(_, &count)| Reverse(count));
        let shown = items.into_iter().take(SHOWN).map(|(item, &count)| TopItem {
            item: item.to_string(),
            count,
        });
        Value::Top(shown.collect())
    }

    /// All clicks, also those of items that are not shown.
    fn weight(&self) -> i64 {
        self.clicks
    }

    fn heap_bytes(&self) -> usize {
        self.counts.len() * size_of::<(Box<str>, i64)>() + self.text_bytes
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.clicks.to_le_bytes());
        out.extend_from_slice(&self.lowered.to_le_bytes());
        for (item, count) in &self.counts {
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(item.as_bytes());
            out.push(END);
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (clicks, rest) = read_number(bytes)?;
        let (lowered, mut rest) = read_number(rest)?;
        let mut counts: Vec<(Box<str>, i64)> = Vec::new();
        let (mut counted, mut text_bytes) = (0_i64, 0);
        while !rest.is_empty() {
            let (count, after) = read_number(rest)?;
            let end = after.iter().position(|&byte| byte == END)?;
            let item = str::from_utf8(&after[..end]).ok()?;
            let ascends = counts.last().is_none_or(|(last, _)| **last < *item);
            counted = counted.checked_add(count)?;
            text_bytes += item.len();
            if count == 0 || !ascends || !Self::fits(counts.len() + 1, text_bytes) {
                return None;
            }
            counts.push((item.into(), count));
            rest = &after[end + 1..];
        }
        let missing = clicks.checked_sub(counted)?;
        let whole = lowered <= missing && (lowered == 0) == (missing == 0);
        whole.then(|| Self {
            clicks,
            lowered,
            counts: counts.into_iter().collect(),
            text_bytes,
        })
    }
}

/// A number from 0 and what follows it.
fn read_number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    let number = i64::from_le_bytes(*number);
    (number >= 0).then_some((number, rest))
}

#[cfg(test)]
mod tests;
