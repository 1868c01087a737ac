//! The groups of a batch, each once: found by name once for a click, by their place from then on.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// A group of one rollup, and what is held for it.
#[derive(Debug)]
pub(super) struct Group<'a, T> {
    /// Place of the rollup in [`Plan::rollups`](super::Plan::rollups).
    pub(super) rollup: u16,
    /// The group within the rollup.
    pub(super) name: Cow<'a, str>,
    pub(super) held: T,
}

/// Groups by place and by name.
#[derive(Debug)]
pub(super) struct Groups<'a, T> {
    all: Vec<Group<'a, T>>,
    /// Places in `all`, so that no name is kept twice.
    places: HashTable<usize>,
    /// Names are chosen by whoever clicks, so they are hashed with a key that nobody knows.
    hasher: RandomState,
}

impl<'a, T> Groups<'a, T> {
    pub(super) fn new() -> Self {
        Self::with_capacity(0)
    }

    /// With room for so many groups, so that they are not hashed again as they become more.
    pub(super) fn with_capacity(groups: usize) -> Self {
        Self {
            all: Vec::with_capacity(groups),
            places: HashTable::with_capacity(groups),
            hasher: RandomState::new(),
        }
    }

    /// The place of a group; one that is new gets the last, with what `held` makes.
    pub(super) fn place_of(
        &mut self,
        rollup: u16,
        name: Cow<'a, str>,
        held: impl FnOnce() -> T,
    ) -> usize {
        let Self {
            all,
            places,
            hasher,
        } = self;
        let hash = hasher.hash_one((rollup, &*name));
        let same = |place: &usize| all[*place].rollup == rollup && all[*place].name == name;
        let again = |place: &usize| hasher.hash_one((all[*place].rollup, &*all[*place].name));
        match places.entry(hash, same, again) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(vacant) => {
                let place = all.len();
                vacant.insert(place);
                all.push(Group {
                    rollup,
                    name,
                    held: held(),
                });
                place
            }
        }
    }

    /// The group at `place`.
    pub(super) fn group(&self, place: usize) -> &Group<'a, T> {
        &self.all[place]
    }

    /// What is held for the group at `place`.
    pub(super) fn held(&mut self, place: usize) -> &mut T {
        &mut self.all[place].held
    }

    /// The same groups at the same places, holding something else.
    pub(super) fn map<U>(self, held: impl Fn(u16, T) -> U) -> Groups<'a, U> {
        let all = self.all.into_iter().map(|group| Group {
            held: held(group.rollup, group.held),
            rollup: group.rollup,
            name: group.name,
        });
        Groups {
            all: all.collect(),
            places: self.places,
            hasher: self.hasher,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group<'a, T>> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group<'a, T>> {
        self.all.iter_mut()
    }

    /// All of them, by name.
    pub(super) fn into_sorted(mut self) -> Vec<Group<'a, T>> {
        self.all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.all
    }
}
