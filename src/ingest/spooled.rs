//! A click as it waits in the spool: as it was after admission, with the book it is for.

use std::io;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::click::Click;
use crate::spool::record::{Record, decode_checked, encode_checked};

/// One record of the spool.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SpooledClick {
    /// Which book.
    pub book: Uuid,
    /// Its id, time of receipt, page and visitor are fixed.
    pub click: Click,
}

impl Record for SpooledClick {
    fn encode(&self, line: &mut Vec<u8>) -> io::Result<()> {
        encode_checked(self, line)
    }

    fn decode(line: &[u8]) -> Option<Self> {
        decode_checked(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::click::{ClickId, Micros};
    use crate::time::Timestamp;

    #[test]
    fn a_click_comes_back_as_it_was_save_that_its_id_may_be_known() {
        let at = Timestamp::from_millis(-5).unwrap();
        let mut spooled = SpooledClick {
            book: Uuid::now_v7(),
            click: Click {
                id: ClickId::made(),
                at,
                received_at: Timestamp::MAX,
                page: "/ä\"\\".to_owned(),
                visitor: Some("v".to_owned()),
                referrer: None,
                source: None,
                value: Some(Micros(-1)),
            },
        };
        let mut line = Vec::new();
        spooled.encode(&mut line).unwrap();
        spooled.click.id.fresh = false;
        assert_eq!(SpooledClick::decode(&line), Some(spooled));
    }
}
