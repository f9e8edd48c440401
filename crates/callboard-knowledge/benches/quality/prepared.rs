//! The base and the plain index that are measured. Both are kept below `target` as long as the corpus is the same.

use std::path::Path;

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use rusqlite::Connection;

use crate::{corpus, plain};

pub(crate) struct Prepared {
    pub(crate) base: KnowledgeBase,
    pub(crate) plain: Connection,
    pub(crate) passages: usize,
}

impl Prepared {
    pub(crate) async fn open() -> Self {
        // It has the hash of each crate's text.
        let list = include_str!("../../tests/quality/corpus.toml");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("quality");
        let (base, plain) = (folder.join("knowledge.db"), folder.join("plain.db"));
        let complete = folder.join("corpus");
        let is_kept = std::fs::read_to_string(&complete).is_ok_and(|kept| kept == list);
        if !is_kept {
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let documents = corpus::documents(&xtask::corpus::corpus(false).unwrap());
            plain::build(&plain, &documents);
            let base = KnowledgeBase::create(&base, &Env::system()).unwrap();
            corpus::write(&base, documents).await;
            base.close().await;
            std::fs::write(&complete, list).unwrap();
        }
        let plain = Connection::open(plain).unwrap();
        let passages = plain.query_row("SELECT count(*) FROM passages", [], |row| row.get(0)).unwrap();
        Self { base: KnowledgeBase::open(&base, &Env::system()).unwrap(), plain, passages }
    }
}
