//! Work that blocks on the disk, and is cancelled with its use of a tool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::super::ToolError;

/// Does blocking work: on a thread of its own if there are several threads, else on this one. If the future is dropped, the work
/// is notified, and stops at its next check.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&GivenUp) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let given_up = GivenUp::default();
    let _guard = TellsIfDropped(given_up.clone());
    match Handle::try_current() {
        Ok(runtime)
            if runtime.runtime_flavor() == RuntimeFlavor::MultiThread && callboard::env::Env::can_start_thread() =>
        {
            match runtime.spawn_blocking(move || work(&given_up)).await {
                Ok(done) => done,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(stopped()),
                },
            }
        }
        // A simulation has one thread, and its order must not depend on another.
        Ok(_) | Err(_) => work(&given_up),
    }
}

/// Whether the work was cancelled.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    pub(super) fn give_up(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.0.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(()) }
    }
}

struct TellsIfDropped(GivenUp);

impl Drop for TellsIfDropped {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

fn stopped() -> ToolError {
    ToolError("it was given up".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_is_given_up_is_reported() {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, has_ended) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let mut work = Box::pin(blocking(move |given_up| {
            begun.send(()).unwrap();
            released.recv().unwrap();
            end.send(given_up.check()).unwrap();
            Ok(())
        }));
        tokio::select! {
            _ = &mut work => panic!("it waits"),
            begun = has_begun => begun.unwrap(),
        }
        drop(work);
        release.send(()).unwrap();
        assert_eq!(has_ended.recv().unwrap(), Err(stopped()));
    }
}
