//! Threads that read the mounted files as fast as they can while these are swapped under them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What the reader threads saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// How many threads read.
    pub threads: usize,
    /// How many times a file was opened and read.
    pub reads: u64,
    /// How many reads gave something else than one whole document.
    pub torn: u64,
    /// How many times a file was not there.
    pub missing: u64,
}

impl ReaderCounts {
    /// Whether every read gave a whole document.
    pub fn read_only_whole_files(self) -> bool {
        self.torn == 0 && self.missing == 0
    }
}

/// The running threads. They end with this.
#[derive(Debug)]
pub(crate) struct ReaderThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<ReaderCounts>>,
}

impl ReaderThreads {
    pub(crate) const THREAD_COUNT: usize = 4;

    pub(crate) fn start(files: &[PathBuf]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..Self::THREAD_COUNT)
            .map(|_| {
                let (files, stop) = (files.to_vec(), Arc::clone(&stop));
                std::thread::spawn(move || read_until_stopped(&files, &stop))
            })
            .collect();
        Self { stop, threads }
    }

    pub(crate) fn finish(mut self) -> ReaderCounts {
        self.stop_and_join()
    }

    fn stop_and_join(&mut self) -> ReaderCounts {
        self.stop.store(true, Ordering::Relaxed);
        let mut total = ReaderCounts { threads: self.threads.len(), ..ReaderCounts::default() };
        for thread in self.threads.drain(..) {
            // A thread that panicked saw something that no reader should see.
            let seen = thread.join().unwrap_or(ReaderCounts { torn: 1, ..ReaderCounts::default() });
            total.reads += seen.reads;
            total.torn += seen.torn;
            total.missing += seen.missing;
        }
        total
    }
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        // A rotation that is broken off leaves nobody who reads on.
        self.stop_and_join();
    }
}

fn read_until_stopped(files: &[PathBuf], stop: &AtomicBool) -> ReaderCounts {
    let mut seen = ReaderCounts::default();
    while !stop.load(Ordering::Relaxed) {
        for file in files {
            seen.reads += 1;
            match read_file(file) {
                ReaderFileResult::Whole => {}
                ReaderFileResult::Torn => seen.torn += 1,
                ReaderFileResult::Missing => seen.missing += 1,
            }
        }
        std::thread::yield_now();
    }
    seen
}

#[derive(Debug, PartialEq, Eq)]
enum ReaderFileResult {
    Whole,
    Torn,
    Missing,
}

/// A credential document is one JSON object: a part of one, or two mixed, is none.
fn read_file(file: &Path) -> ReaderFileResult {
    let Ok(bytes) = std::fs::read(file) else {
        return ReaderFileResult::Missing;
    };
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes) {
        Ok(document) if document.contains_key("client_secret") => ReaderFileResult::Whole,
        _ => ReaderFileResult::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_distinguishes_whole_torn_and_missing_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credential");
        assert_eq!(read_file(&file), ReaderFileResult::Missing);
        std::fs::write(&file, r#"{"client_secret":"x"#).unwrap();
        assert_eq!(read_file(&file), ReaderFileResult::Torn);
        std::fs::write(&file, r#"{"client_secret":"x"}"#).unwrap();
        assert_eq!(read_file(&file), ReaderFileResult::Whole);
    }

    #[test]
    fn counts_of_reader_threads_are_summed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credential");
        let readers = ReaderThreads::start(&[file]).finish();
        assert_eq!(readers.threads, ReaderThreads::THREAD_COUNT);
        assert_eq!(readers.missing, readers.reads);
    }

    #[test]
    fn dropping_reader_threads_stops_them() {
        let directory = tempfile::tempdir().unwrap();
        let readers = ReaderThreads::start(&[directory.path().join("credential")]);
        let stop = Arc::clone(&readers.stop);
        drop(readers);
        // The threads held the others.
        assert_eq!(Arc::strong_count(&stop), 1);
        assert!(stop.load(Ordering::Relaxed));
    }
}
