//! Threads that read the mounted files as fast as they can while these are swapped under them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What the reader threads saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readers {
    /// How many threads read.
    pub threads: usize,
    /// How many times a file was opened and read.
    pub reads: u64,
    /// How many reads gave something else than one whole document.
    pub torn: u64,
    /// How many times a file was not there.
    pub missing: u64,
}

impl Readers {
    /// Whether every read gave a whole document.
    pub fn saw_whole_files_only(self) -> bool {
        self.torn == 0 && self.missing == 0
    }
}

/// The running threads. They end with this.
#[derive(Debug)]
pub(crate) struct ReaderLoop {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Readers>>,
}

impl ReaderLoop {
    pub(crate) const THREADS: usize = 4;

    pub(crate) fn start(files: &[PathBuf]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..Self::THREADS)
            .map(|_| {
                let (files, stop) = (files.to_vec(), Arc::clone(&stop));
                std::thread::spawn(move || read_until(&files, &stop))
            })
            .collect();
        Self { stop, threads }
    }

    pub(crate) fn finish(mut self) -> Readers {
        self.end()
    }

    fn end(&mut self) -> Readers {
        self.stop.store(true, Ordering::Relaxed);
        let mut total = Readers { threads: self.threads.len(), ..Readers::default() };
        for thread in self.threads.drain(..) {
            // A thread that panicked saw something that no reader should see.
            let seen = thread.join().unwrap_or(Readers { torn: 1, ..Readers::default() });
            total.reads += seen.reads;
            total.torn += seen.torn;
            total.missing += seen.missing;
        }
        total
    }
}

impl Drop for ReaderLoop {
    fn drop(&mut self) {
        // A rotation that is broken off leaves nobody who reads on.
        self.end();
    }
}

fn read_until(files: &[PathBuf], stop: &AtomicBool) -> Readers {
    let mut seen = Readers::default();
    while !stop.load(Ordering::Relaxed) {
        for file in files {
            seen.reads += 1;
            match read(file) {
                Sight::Whole => {}
                Sight::Torn => seen.torn += 1,
                Sight::Missing => seen.missing += 1,
            }
        }
        std::thread::yield_now();
    }
    seen
}

#[derive(Debug, PartialEq, Eq)]
enum Sight {
    Whole,
    Torn,
    Missing,
}

/// A credential document is one JSON object: a part of one, or two mixed, is none.
fn read(file: &Path) -> Sight {
    let Ok(bytes) = std::fs::read(file) else {
        return Sight::Missing;
    };
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes) {
        Ok(document) if document.contains_key("client_secret") => Sight::Whole,
        _ => Sight::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_tells_whole_torn_and_missing_apart() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credential");
        assert_eq!(read(&file), Sight::Missing);
        std::fs::write(&file, r#"{"client_secret":"x"#).unwrap();
        assert_eq!(read(&file), Sight::Torn);
        std::fs::write(&file, r#"{"client_secret":"x"}"#).unwrap();
        assert_eq!(read(&file), Sight::Whole);
    }

    #[test]
    fn the_loop_counts_what_all_threads_saw() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credential");
        let readers = ReaderLoop::start(&[file]).finish();
        assert_eq!(readers.threads, ReaderLoop::THREADS);
        assert_eq!(readers.missing, readers.reads);
    }

    #[test]
    fn a_loop_that_is_dropped_leaves_no_thread() {
        let directory = tempfile::tempdir().unwrap();
        let readers = ReaderLoop::start(&[directory.path().join("credential")]);
        let stop = Arc::clone(&readers.stop);
        drop(readers);
        // The threads held the others.
        assert_eq!(Arc::strong_count(&stop), 1);
        assert!(stop.load(Ordering::Relaxed));
    }
}
