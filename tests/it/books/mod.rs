//! Books: made, read, changed, closed, reopened, deleted; and the manners of every answer.

mod changing;
mod life;
mod making;
mod manners;

use serde_json::{Value, json};

/// A good rollup, with `changes` laid over it.
fn rollup(changes: Value) -> Value {
    let mut rollup = json!({"name": "pages", "group_by": "page", "aggregate": "count",
                            "window": {"kind": "tumbling", "size_ms": 1000}});
    for (name, value) in changes.as_object().unwrap() {
        rollup[name] = value.clone();
    }
    rollup
}

/// Lists of rollups that no book may have.
fn bad_rollups() -> Vec<Value> {
    let sized = |size: Value| rollup(json!({"window": {"kind": "tumbling", "size_ms": size}}));
    let many = |n: usize| -> Value {
        let names = (0..n).map(|n| rollup(json!({"name": format!("r{n}")})));
        names.collect()
    };
    vec![
        json!([sized(json!(0))]),
        json!([sized(json!(-1000))]),
        json!([sized(json!(i64::MAX))]),
        json!([sized(json!(1.5))]),
        json!([sized(json!("1000"))]),
        json!([sized(json!(null))]),
        json!([rollup(json!({"lateness_ms": -1}))]),
        json!([rollup(json!({"lateness_ms": i64::MAX}))]),
        json!([rollup(json!({})), rollup(json!({}))]),
        json!([rollup(json!({"name": ""}))]),
        json!([rollup(json!({"name": "a b"}))]),
        json!([rollup(json!({"name": "a\u{0}"}))]),
        json!([rollup(json!({"name": "n".repeat(65)}))]),
        json!([rollup(json!({"group_by": "author"}))]),
        json!([rollup(json!({"aggregate": "median"}))]),
        json!([rollup(
            json!({"window": {"kind": "hopping", "size_ms": 1000}})
        )]),
        json!([rollup(json!({"unknown": 1}))]),
        json!([{"name": "pages"}]),
        json!({}),
        many(0),
        many(9),
    ]
}
