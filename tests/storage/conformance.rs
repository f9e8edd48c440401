//! Every store keeps every rule of `Storage`.

use std::sync::{Arc, OnceLock};

use callboard::storage::{Memory, Sled};
use callboard::testing::conformance::{Mortal, Subject};
use callboard::testing::{Seeds, Sim};

callboard::storage_conformance! {
    in_memory memory: Subject::new(|clock| async { Arc::new(Memory::new(clock)) as _ })
}

callboard::storage_conformance! {
    on_disk sled: {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Subject::new(move |clock| {
            let folder = Arc::clone(&folder);
            async move { Arc::new(Sled::open_with_clock(folder.path(), clock).unwrap()) as _ }
        })
    }
}

callboard::storage_conformance! {
    shared memory_of_several: {
        let server = OnceLock::new();
        Subject::new(move |clock| {
            let handle = Arc::clone(server.get_or_init(|| Arc::new(Memory::new(clock))));
            async move { handle as _ }
        })
    }
}

callboard::storage_conformance! {
    on_disk sled_that_applies_soon: {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Subject::new(move |clock| {
            let folder = Arc::clone(&folder);
            async move { Arc::new(Sled::open_with_clock(folder.path(), clock).unwrap().applied_from(1 << 10)) as _ }
        })
    }
}

callboard::storage_conformance! {
    killed sled_killed: |folder| async move { Arc::new(Sled::open(folder).unwrap()) as _ }
}

callboard::storage_conformance! {
    killed sled_killed_while_it_applies: |folder| async move {
        Arc::new(Sled::open(folder).unwrap().applied_from(1 << 10)) as _
    }
}

/// The disk of simulations, which is crashed in many ways each time.
struct Simulated;

impl Simulated {
    fn check(self, rule: &str) {
        Seeds::new(20).simulate(async |sim: Sim| {
            let (opened, crashed) = (sim.clone(), sim);
            let open = move || std::future::ready(opened.storage());
            let crash = move || {
                let sim = crashed.clone();
                async move { sim.crash().await }
            };
            Mortal::in_process(open, crash).keeps(rule).await;
            Ok(())
        });
    }
}

callboard::storage_conformance! {
    crashed memory_with_loss: Simulated
}
