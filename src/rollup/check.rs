//! What a rollup may be.

use super::{
    AggregateKind, Field, MAX_ROLLUPS, MAX_SPAN_MS, MAX_WINDOWS_PER_CLICK, Rollup, RollupSpec,
    WindowSpec,
};

/// What is wrong with a rollup: which field, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct RollupError {
    /// Place in the list.
    pub index: usize,
    /// Name of the field, with dots.
    pub field: &'static str,
    /// What it has to be.
    pub detail: String,
}

/// Checks a book's rollups; `lateness_ms` is the book's own, for those without one.
///
/// # Errors
/// Everything that is wrong, not only the first.
pub fn check(specs: &[RollupSpec], lateness_ms: i64) -> Result<Vec<Rollup>, Vec<RollupError>> {
    let mut errors = Vec::new();
    if specs.is_empty() || specs.len() > MAX_ROLLUPS {
        errors.push(RollupError {
            index: 0,
            field: "rollups",
            detail: format!("a book has 1 to {MAX_ROLLUPS} rollups"),
        });
    }
    let mut windows_per_click = 0_i64;
    let mut rollups = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let mut wrong = |field, detail: String| {
            errors.push(RollupError {
                index,
                field,
                detail,
            });
        };
        let name = &spec.name;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
            wrong("name", "1 to 64 of a-z, A-Z, 0-9, - and _".to_owned());
        }
        if specs[..index].iter().any(|other| other.name == *name) {
            wrong("name", format!("another rollup is named {name}"));
        }
        let lateness_ms = spec.lateness_ms.unwrap_or(lateness_ms);
        if !(0..=MAX_SPAN_MS).contains(&lateness_ms) {
            wrong("lateness_ms", format!("from 0 to {MAX_SPAN_MS}"));
        }
        let of = match checked_of(spec) {
            Ok(of) => of,
            Err(detail) => {
                wrong("of", detail.to_owned());
                None
            }
        };
        let rollup = Rollup {
            name: name.clone(),
            group_by: spec.group_by,
            window: spec.window,
            aggregate: spec.aggregate,
            of,
            lateness_ms,
        };
        let wrong_lengths = wrong_lengths(spec.window);
        if wrong_lengths.is_empty() {
            windows_per_click = windows_per_click.saturating_add(spec.window.windows_per_click());
            let whole = spec
                .window
                .span_ms()
                .saturating_add(rollup.closes_after_ms());
            if whole > MAX_SPAN_MS && lateness_ms <= MAX_SPAN_MS {
                let detail =
                    "a window and its lateness together reach beyond the years 0001 to 9999";
                wrong("lateness_ms", detail.to_owned());
            }
        }
        for (field, detail) in wrong_lengths {
            wrong(field, detail);
        }
        rollups.push(rollup);
    }
    if windows_per_click > MAX_WINDOWS_PER_CLICK {
        errors.push(RollupError {
            index: 0,
            field: "window",
            detail: format!(
                "a click would fall into {windows_per_click} windows over all rollups; at most \
                 {MAX_WINDOWS_PER_CLICK}"
            ),
        });
    }
    if errors.is_empty() {
        Ok(rollups)
    } else {
        Err(errors)
    }
}

/// What is wrong with the lengths of a window, field by field.
fn wrong_lengths(window: WindowSpec) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let mut within = |field, length: i64, most: i64| {
        if !(1..=most).contains(&length) {
            wrong.push((field, format!("from 1 to {most}")));
        }
    };
    match window {
        WindowSpec::Tumbling { size_ms } => within("window.size_ms", size_ms, MAX_SPAN_MS),
        WindowSpec::Sliding { size_ms, slide_ms } => {
            within("window.size_ms", size_ms, MAX_SPAN_MS);
            let most = size_ms.clamp(1, MAX_SPAN_MS);
            within("window.slide_ms", slide_ms, most);
        }
        WindowSpec::Session { gap_ms } => within("window.gap_ms", gap_ms, MAX_SPAN_MS),
    }
    wrong
}

/// What of a click the rollup aggregates.
fn checked_of(spec: &RollupSpec) -> Result<Option<Field>, &'static str> {
    match (spec.aggregate, spec.of) {
        (AggregateKind::Count, of) => Ok(of),
        (AggregateKind::Distinct, of) => Ok(of.or(Some(Field::Visitor))),
        (AggregateKind::Top, of) => Ok(of.or(Some(Field::Page))),
        (_, None | Some(Field::Value)) => Ok(Some(Field::Value)),
        (_, Some(_)) => {
            Err("sum, min, max, first and last are of value: the others are no numbers")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GroupBy, default_rollups};
    use super::*;

    fn spec(name: &str, window: WindowSpec) -> RollupSpec {
        RollupSpec {
            name: name.to_owned(),
            group_by: GroupBy::Page,
            window,
            aggregate: AggregateKind::Count,
            of: None,
            lateness_ms: None,
        }
    }

    fn wrong(specs: &[RollupSpec]) -> Vec<(usize, &'static str)> {
        let errors = check(specs, 0).err().unwrap_or_default();
        errors.iter().map(|e| (e.index, e.field)).collect()
    }

    fn sliding(size_ms: i64, slide_ms: i64) -> RollupSpec {
        spec("s", WindowSpec::Sliding { size_ms, slide_ms })
    }

    #[test]
    fn refuses_all_that_is_wrong_at_once() {
        let tumbling = |name, size_ms, lateness_ms| RollupSpec {
            lateness_ms,
            ..spec(name, WindowSpec::Tumbling { size_ms })
        };
        let errors = wrong(&[
            tumbling("a", 0, None),
            tumbling("a", 1, Some(-1)),
            tumbling("b b", i64::MAX, Some(i64::MAX)),
        ]);
        assert_eq!(
            errors,
            [
                (0, "window.size_ms"),
                (1, "name"),
                (1, "lateness_ms"),
                (2, "name"),
                (2, "lateness_ms"),
                (2, "window.size_ms"),
            ]
        );
        assert!(check(&default_rollups(), 60_000).is_ok());
        assert!(check(&[], 0).is_err());
    }

    #[test]
    fn windows_have_lengths_that_can_be_counted_with() {
        let gap = |gap_ms| spec("g", WindowSpec::Session { gap_ms });
        assert_eq!(wrong(&[sliding(10, 0)]), [(0, "window.slide_ms")]);
        assert_eq!(wrong(&[sliding(10, 11)]), [(0, "window.slide_ms")]);
        assert_eq!(wrong(&[sliding(0, 1)]), [(0, "window.size_ms")]);
        assert_eq!(wrong(&[sliding(i64::MIN, i64::MAX)]).len(), 2);
        assert_eq!(wrong(&[gap(0)]), [(0, "window.gap_ms")]);
        assert_eq!(wrong(&[gap(i64::MAX)]), [(0, "window.gap_ms")]);
        // Closed a gap after its lateness, hence twice the gap after its last click.
        assert_eq!(wrong(&[gap(MAX_SPAN_MS / 2 + 1)]), [(0, "lateness_ms")]);
        assert_eq!(wrong(&[gap(MAX_SPAN_MS / 2)]), []);
    }

    #[test]
    fn a_click_falls_into_a_hundred_windows_at_most() {
        assert_eq!(wrong(&[sliding(100, 1)]), []);
        assert_eq!(wrong(&[sliding(201, 2)]), [(0, "window")]);
        let day = spec(
            "d",
            WindowSpec::Tumbling {
                size_ms: 86_400_000,
            },
        );
        assert_eq!(wrong(&[day, sliding(199, 2)]), [(0, "window")]);
    }

    #[test]
    fn numbers_are_of_values() {
        let of = |aggregate, of| RollupSpec {
            aggregate,
            of,
            ..spec("a", WindowSpec::Tumbling { size_ms: 1 })
        };
        let checked = |spec| check(&[spec], 0).map(|rollups| rollups[0].of);
        assert_eq!(
            wrong(&[of(AggregateKind::Sum, Some(Field::Page))]),
            [(0, "of")]
        );
        assert_eq!(
            checked(of(AggregateKind::Sum, None)),
            Ok(Some(Field::Value))
        );
        assert_eq!(
            checked(of(AggregateKind::Distinct, None)),
            Ok(Some(Field::Visitor))
        );
        assert_eq!(checked(of(AggregateKind::Top, None)), Ok(Some(Field::Page)));
        assert_eq!(checked(of(AggregateKind::Count, None)), Ok(None));
    }
}
