//! What every store promises, as tests that each of them passes.

use super::{AppendError, Segment, SegmentKey, Store, Window};

/// Every case, each with a store of its own that `open` makes with a bound in bytes.
pub(super) async fn all<S: Store<i64>>(open: impl Fn(u64) -> S) {
    records_come_back_in_order(&open(u64::MAX)).await;
    an_opened_segment_never_grows(&open(u64::MAX)).await;
    a_dropped_segment_comes_back(&open(u64::MAX)).await;
    a_cursor_passes_over_what_is_before_it(&open(u64::MAX)).await;
    a_key_is_never_used_again(&open(u64::MAX)).await;
    the_bound_holds_until_there_is_room_again(&open(4)).await;
    a_full_segment_is_left_alone(&open(u64::MAX)).await;
    records_can_be_taken_before_the_commit(&open(u64::MAX)).await;
}

/// What the store holds, oldest first, segment by segment.
pub(super) async fn stored<S: Store<i64>>(store: &S) -> Vec<Vec<i64>> {
    let mut found = Vec::new();
    let mut after = None;
    while let Some(segment) = store.oldest(after).await.unwrap() {
        after = Some(segment.key());
        found.push(segment.records().to_vec());
    }
    found
}

async fn oldest<S: Store<i64>>(store: &S, after: Option<SegmentKey>) -> S::Segment {
    store.oldest(after).await.unwrap().unwrap()
}

async fn records_come_back_in_order<S: Store<i64>>(store: &S) {
    assert!(store.oldest(None).await.unwrap().is_none());
    store.append(Window(7200), vec![4]).await.unwrap();
    store.append(Window(3600), vec![1, 2]).await.unwrap();
    store.append(Window(3600), vec![]).await.unwrap();
    store.append(Window(3600), vec![3]).await.unwrap();
    assert_eq!((store.segments(), store.bytes()), (2, 8));
    assert_eq!(stored(store).await, [vec![1, 2, 3], vec![4]]);
    for window in [3600, 7200] {
        let segment = oldest(store, None).await;
        assert_eq!(segment.key().window(), Window(window));
        assert_eq!(segment.damaged(), 0);
        segment.commit().await.unwrap();
    }
    assert_eq!((store.segments(), store.bytes()), (0, 0));
    assert!(store.oldest(None).await.unwrap().is_none());
}

async fn an_opened_segment_never_grows<S: Store<i64>>(store: &S) {
    store.append(Window(10), vec![1]).await.unwrap();
    let first = oldest(store, None).await;
    store.append(Window(10), vec![2]).await.unwrap();
    store.append(Window(10), vec![3]).await.unwrap();
    assert_eq!(stored(store).await, [vec![1], vec![2, 3]]);
    first.commit().await.unwrap();
    assert_eq!(stored(store).await, [vec![2, 3]]);
}

async fn a_dropped_segment_comes_back<S: Store<i64>>(store: &S) {
    store.append(Window(10), vec![1, 2]).await.unwrap();
    drop(oldest(store, None).await);
    store.append(Window(10), vec![3]).await.unwrap();
    assert_eq!(stored(store).await, [vec![1, 2], vec![3]]);
}

async fn a_cursor_passes_over_what_is_before_it<S: Store<i64>>(store: &S) {
    for window in [10, 310, 610] {
        let record = i64::try_from(window).unwrap();
        store.append(Window(window), vec![record]).await.unwrap();
    }
    let refused = oldest(store, None).await.key();
    for window in [310, 610] {
        let segment = oldest(store, Some(refused)).await;
        assert_eq!(segment.records(), [window]);
        segment.commit().await.unwrap();
    }
    assert!(store.oldest(Some(refused)).await.unwrap().is_none());
    assert_eq!(stored(store).await, [[10]]);
}

/// A cursor that stands behind a committed segment sees what comes to its window afterwards.
async fn a_key_is_never_used_again<S: Store<i64>>(store: &S) {
    store.append(Window(10), vec![1]).await.unwrap();
    let first = oldest(store, None).await;
    let cursor = first.key();
    first.commit().await.unwrap();
    store.append(Window(10), vec![2]).await.unwrap();
    assert_eq!(oldest(store, Some(cursor)).await.records(), [2]);
}

async fn the_bound_holds_until_there_is_room_again<S: Store<i64>>(store: &S) {
    store.append(Window(1), vec![1]).await.unwrap();
    store.append(Window(2), vec![2]).await.unwrap();
    assert_eq!((store.bytes(), store.max_bytes()), (4, 4));
    let refused = store.append(Window(2), vec![3]).await;
    assert!(matches!(refused, Err(AppendError::Full)));
    assert_eq!(stored(store).await, [[1], [2]]);
    oldest(store, None).await.commit().await.unwrap();
    store.append(Window(2), vec![4]).await.unwrap();
    assert_eq!(stored(store).await, [[2], [4]]);
}

async fn a_full_segment_is_left_alone<S: Store<i64>>(store: &S) {
    // A line takes ten bytes, so this is a little more than a segment holds; it stays together.
    let many = vec![100_000_000; 900_000];
    store.append(Window(1), many.clone()).await.unwrap();
    store.append(Window(1), vec![7]).await.unwrap();
    store.append(Window(1), vec![8]).await.unwrap();
    assert!(stored(store).await == [many, vec![7, 8]]);
}

async fn records_can_be_taken_before_the_commit<S: Store<i64>>(store: &S) {
    store.append(Window(1), vec![1, 2]).await.unwrap();
    let mut segment = oldest(store, None).await;
    assert_eq!(segment.take_records(), [1, 2]);
    assert_eq!(stored(store).await, [[1, 2]]);
    segment.commit().await.unwrap();
    assert_eq!(store.segments(), 0);
}
