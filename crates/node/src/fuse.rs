//! Where tests crash: before any call that changes the disk.

use std::io;

/// Burns down with every changing call; once spent, each further call fails, as after a crash
/// (whatever would clean up fails too). Outside tests it has no length and never ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fuse {
    #[cfg(test)]
    left: Option<std::sync::Arc<std::sync::atomic::AtomicUsize>>,
    #[cfg(test)]
    mends: bool,
}

impl Fuse {
    /// A fuse that lets `calls` changing calls pass.
    #[cfg(test)]
    pub(crate) fn of(calls: usize) -> Self {
        Self { left: Some(std::sync::Arc::new(calls.into())), mends: false }
    }

    /// A fuse that lets `calls` changing calls pass, fails one, and lets all others pass.
    #[cfg(test)]
    pub(crate) fn flawed_after(calls: usize) -> Self {
        Self { mends: true, ..Self::of(calls) }
    }

    /// Whether the fuse has ended.
    #[cfg(test)]
    pub(crate) fn is_spent(&self) -> bool {
        use std::sync::atomic::Ordering::SeqCst;
        self.left.as_ref().is_some_and(|left| left.load(SeqCst) == 0)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "only tests crash")]
    pub(crate) fn burn(&self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn burn(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let Some(left) = &self.left else { return Ok(()) };
        left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).map(|_| ()).map_err(
            |_spent| {
                if self.mends {
                    left.store(usize::MAX, SeqCst);
                }
                io::Error::other("crashed here")
            },
        )
    }
}
