//! What a crash, a restart and a damaged file may do to a folder, and what not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use futures_util::future::join_all;

use super::folder;
use super::scratch::Scratch;
use super::*;
use crate::spool::suite::{self, stored};
use crate::spool::{Segment, SegmentKey};

fn open(scratch: &Scratch) -> DiskStore<i64> {
    DiskStore::open(scratch.path(), u64::MAX).unwrap()
}

/// The names of the files, but for the lock.
fn files(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path()).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|n| n != "lock").collect();
    names.sort();
    names
}

/// Writes a segment's file by hand.
fn put(scratch: &Scratch, window: u64, bytes: &[u8]) -> PathBuf {
    let key = SegmentKey {
        window: Window(window),
        sequence: 0,
    };
    fs::create_dir_all(scratch.path()).unwrap();
    let path = scratch.path().join(folder::name(key));
    fs::write(&path, bytes).unwrap();
    path
}

async fn commit_all(store: &DiskStore<i64>) {
    while let Some(segment) = store.oldest(None).await.unwrap() {
        segment.commit().await.unwrap();
    }
}

#[tokio::test]
async fn keeps_to_what_stores_promise() {
    let scratch = Scratch::new();
    let number = std::cell::Cell::new(0);
    suite::all(|max_bytes| {
        number.set(number.get() + 1);
        DiskStore::open(&scratch.path().join(number.get().to_string()), max_bytes).unwrap()
    })
    .await;
}

#[tokio::test]
async fn files_written_by_hand_come_back_and_are_gone_after_the_commit() {
    let scratch = Scratch::new();
    put(&scratch, 7200, b"3\n");
    put(&scratch, 3600, b"1\n2\n");
    let store = open(&scratch);
    assert_eq!((store.segments(), store.bytes()), (2, 6));
    assert_eq!(stored(&store).await, [vec![1, 2], vec![3]]);
    commit_all(&store).await;
    assert_eq!(files(&scratch), [""; 0]);
}

#[tokio::test]
async fn a_torn_line_costs_only_itself() {
    let scratch = Scratch::new();
    let file = put(&scratch, 1, b"1\n2\n{\"torn");
    // Torn within a character of several bytes.
    put(
        &scratch,
        2,
        "3\n\"caf\u{e9}".as_bytes().split_last().unwrap().1,
    );
    put(&scratch, 3, b"45");
    put(&scratch, 4, b"");
    let long = [b"6\n".as_slice(), &vec![b'7'; 200_000]].concat();
    put(&scratch, 5, &long);
    let store = open(&scratch);
    assert_eq!(stored(&store).await, [vec![1, 2], vec![3], vec![6]]);
    assert_eq!(fs::read(file).unwrap(), b"1\n2\n");
    assert_eq!((store.bytes(), files(&scratch).len()), (8, 3));
}

/// Between any two steps there may be a restart.
#[tokio::test]
async fn what_is_appended_after_a_torn_line_is_not_lost() {
    for restarts in 0..16_u32 {
        let scratch = Scratch::new();
        put(&scratch, 1, b"1\n{\"torn");
        let mut store = open(&scratch);
        for step in 0..4 {
            if restarts >> step & 1 == 1 {
                drop(store);
                store = open(&scratch);
            }
            match step {
                0 => drop(store.oldest(None).await.unwrap().unwrap()),
                3 => {}
                _ => store.append(Window(1), vec![step + 1]).await.unwrap(),
            }
        }
        assert_eq!(stored(&store).await.concat(), [1, 2, 3], "{restarts:b}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash() {
    let scratch = Scratch::new();
    let copy = Scratch::new();
    let store = open(&scratch);
    store.append(Window(5), vec![1, 2]).await.unwrap();
    store.append(Window(5), vec![3]).await.unwrap();
    // What another process would find if this one had been killed here.
    fs::create_dir_all(copy.path()).unwrap();
    for file in files(&scratch) {
        fs::copy(scratch.path().join(&file), copy.path().join(&file)).unwrap();
    }
    assert_eq!(stored(&open(&copy)).await, [[1, 2, 3]]);
}

#[tokio::test]
async fn a_dropped_append_leaves_the_store_sound() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    for n in 0..50 {
        let append = store.append(Window(1), vec![n]);
        let at_once = std::time::Duration::ZERO;
        let _ = tokio::time::timeout(at_once, append).await;
    }
    store.append(Window(1), vec![100]).await.unwrap();
    let found = stored(&store).await.concat();
    assert!(found.is_sorted());
    assert_eq!(found.last(), Some(&100));
    drop(store);
    assert_eq!(stored(&open(&scratch)).await.concat(), found);
}

#[tokio::test]
async fn damaged_lines_are_set_aside_once() {
    let scratch = Scratch::new();
    let file = put(&scratch, 1, b"1\nx\n2\n\n\xff\xfe\n3\n");
    let store = open(&scratch);
    let bad = PathBuf::from(format!("{}.bad", file.display()));
    for _ in 0..2 {
        let segment = store.oldest(None).await.unwrap().unwrap();
        assert_eq!(segment.records(), [1, 2, 3]);
        assert_eq!(segment.damaged(), 3);
        assert_eq!(fs::read(&bad).unwrap(), b"x\n\n\xff\xfe\n");
    }
    commit_all(&store).await;
    assert!(!file.exists() && bad.exists());
    drop(store);

    // A restart begins to count anew, but not so that the same name is given again.
    let store = open(&scratch);
    assert_eq!((store.segments(), store.bytes()), (0, 0));
    store.append(Window(1), vec![4]).await.unwrap();
    assert!(!file.exists());
    assert_eq!(stored(&store).await, [[4]]);
}

#[tokio::test]
async fn a_line_that_was_cut_behind_our_back_is_not_taken_for_a_whole_one() {
    let scratch = Scratch::new();
    let file = put(&scratch, 1, b"1\n23\n");
    let store = open(&scratch);
    fs::write(&file, b"1\n2").unwrap();
    let segment = store.oldest(None).await.unwrap().unwrap();
    assert_eq!((segment.records(), segment.damaged()), ([1].as_slice(), 1));
}

#[tokio::test]
async fn a_segment_is_kept_while_its_damaged_lines_cannot_be_set_aside() {
    let scratch = Scratch::new();
    let file = put(&scratch, 1, b"1\nx\n");
    put(&scratch, 2, b"2\n");
    let bad = PathBuf::from(format!("{}.bad", file.display()));
    fs::create_dir(&bad).unwrap();
    let store = open(&scratch);
    let error = store.oldest(None).await.unwrap_err();
    assert_eq!(error.key().window(), Window(1));
    let next = store.oldest(Some(error.key())).await.unwrap().unwrap();
    assert_eq!(next.records(), [2]);
    fs::remove_dir(&bad).unwrap();
    assert_eq!(stored(&store).await, [[1], [2]]);
}

#[tokio::test]
async fn a_segment_that_cannot_be_removed_comes_back() {
    let scratch = Scratch::new();
    let file = put(&scratch, 1, b"1\n");
    let store = open(&scratch);
    let first = store.oldest(None).await.unwrap().unwrap();
    let second = store.oldest(None).await.unwrap().unwrap();
    let third = store.oldest(None).await.unwrap().unwrap();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    first.commit().await.unwrap_err();
    assert_eq!((store.segments(), store.bytes()), (1, 2));
    fs::remove_dir(&file).unwrap();
    for segment in [second, third] {
        segment.commit().await.unwrap();
        assert_eq!((store.segments(), store.bytes()), (0, 0));
    }
}

#[tokio::test]
async fn a_segment_that_cannot_be_read_is_passed_over() {
    let scratch = Scratch::new();
    let file = put(&scratch, 1, b"1\n");
    put(&scratch, 2, b"2\n");
    let store = open(&scratch);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = store.oldest(None).await.unwrap_err();
    assert_eq!(error.key().window(), Window(1));
    let next = store.oldest(Some(error.key())).await.unwrap().unwrap();
    assert_eq!(next.records(), [2]);
    next.commit().await.unwrap();
    assert_eq!(store.segments(), 1);
}

#[tokio::test]
async fn appends_may_wait_together() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    let appends = (0..200).map(|n| store.append(Window(1), vec![n]));
    for appended in join_all(appends).await {
        appended.unwrap();
    }
    let mut found = stored(&store).await.concat();
    found.sort_unstable();
    assert_eq!(found, (0..200).collect::<Vec<_>>());

    let before = store.syncs();
    store.append(Window(1), vec![1]).await.unwrap();
    let first = "the file and, as it is new, the folder";
    assert_eq!(store.syncs() - before, 2, "{first}");
    store.append(Window(1), vec![2]).await.unwrap();
    assert_eq!(store.syncs() - before, 3);
}

#[tokio::test]
async fn a_folder_is_for_one() {
    let scratch = Scratch::new();
    let store = open(&scratch);
    store.append(Window(1), vec![1]).await.unwrap();
    let second = DiskStore::<i64>::open(scratch.path(), 1).unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second}");
    let segment = store.oldest(None).await.unwrap();
    drop(store);
    // Who has a segment open may still remove it.
    DiskStore::<i64>::open(scratch.path(), 1).unwrap_err();
    drop(segment);
    assert_eq!(stored(&open(&scratch)).await, [[1]]);
}

#[tokio::test]
async fn many_segments_cost_one_look_at_the_folder() {
    let scratch = Scratch::new();
    for window in 0..3_000 {
        put(&scratch, window, format!("{window}\n").as_bytes());
    }
    let store = open(&scratch);
    // Whoever lists the folder again finds this.
    put(&scratch, 10_000, b"10000\n");
    for window in 0..3_000 {
        let segment = store.oldest(None).await.unwrap().unwrap();
        assert_eq!(segment.records(), [window]);
        segment.commit().await.unwrap();
    }
    assert!(store.oldest(None).await.unwrap().is_none());
    assert_eq!(files(&scratch).len(), 1);
}

#[tokio::test]
async fn files_that_are_not_ours_are_left_alone() {
    let scratch = Scratch::new();
    put(&scratch, 1, b"1\n");
    let strange = [
        "1-0.jsonl",
        "-00000000000000000001-000000.jsonl",
        "00000000000000000001-+00001.jsonl",
        "00000000000000000001-000001.jsonl.tmp",
        "notes",
    ];
    for name in strange {
        fs::write(scratch.path().join(name), b"2\n").unwrap();
    }
    let store = open(&scratch);
    commit_all(&store).await;
    assert_eq!(files(&scratch).len(), strange.len());
}

#[tokio::test]
async fn only_we_may_read_what_is_stored() {
    let scratch = Scratch::new();
    put(&scratch, 1, b"x\n1\n");
    let nested = Scratch(scratch.path().join("a/b"));
    let store = open(&nested);
    store.append(Window(1), vec![1]).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(nested.path()), 0o700);
    assert_eq!(files(&nested).len(), 1);
    for file in ["lock", &files(&nested)[0]] {
        assert_eq!(mode(&nested.path().join(file)), 0o600);
    }
}

#[tokio::test]
async fn readers_and_writers_at_once_lose_nothing() {
    let scratch = Scratch::new();
    let store = Arc::new(open(&scratch));
    let writers: Vec<_> = (0..8_i64)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..50_i64 {
                    let window = Window(n.unsigned_abs() / 10);
                    store.append(window, vec![writer * 50 + n]).await.unwrap();
                }
            })
        })
        .collect();
    let mut found = Vec::new();
    while found.len() < 400 {
        if let Some(mut segment) = store.oldest(None).await.unwrap() {
            found.extend(segment.take_records());
            segment.commit().await.unwrap();
        } else {
            tokio::task::yield_now().await;
        }
    }
    join_all(writers).await;
    for writer in 0..8 {
        let of_writer = found.iter().filter(|n| **n / 50 == writer);
        assert!(of_writer.is_sorted());
    }
    found.sort_unstable();
    assert_eq!(found, (0..400).collect::<Vec<_>>());
    assert_eq!((store.segments(), store.bytes()), (0, 0));
}
