//! Rows over a store on disk: the same histories as over a base in memory.

use std::sync::Arc;

use proptest::prelude::*;
use store::{FjallBase, StoreOptions};

#[path = "../../kernel/tests/rows_model/mod.rs"]
mod rows_model;

use rows_model::{Checked, events};

proptest! {
    // Each checkpoint syncs files, so fewer cases than in memory.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn rows_are_what_a_plain_map_would_be(events in events(120)) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let open = || FjallBase::open(dir.path(), StoreOptions::default()).expect("opened");
        let mut checked = Checked::new(Arc::new(open()));
        checked.run(events);
        checked.check_reopened(|| Arc::new(open()));
    }
}
