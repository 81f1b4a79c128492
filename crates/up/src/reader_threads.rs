//! Threads that continuously read the mounted files while a rotation replaces them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What the reader threads saw: their reads, and how many found a torn file or no file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// The number of threads.
    pub threads: usize,
    /// The number of times a file was opened and read.
    pub reads: u64,
    /// The number of reads that did not return one whole document.
    pub torn: u64,
    /// The number of reads that found no file.
    pub missing: u64,
}

impl ReaderCounts {
    /// Whether every read returned a whole document.
    pub fn read_only_whole_files(self) -> bool {
        self.torn == 0 && self.missing == 0
    }
}

/// The running reader threads. Dropping the value stops them.
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
            // A panic of a reader thread counts as one torn read.
            let counts =
                thread.join().unwrap_or(ReaderCounts { torn: 1, ..ReaderCounts::default() });
            total.reads += counts.reads;
            total.torn += counts.torn;
            total.missing += counts.missing;
        }
        total
    }
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        // Stops the threads also when a rotation is cancelled.
        self.stop_and_join();
    }
}

fn read_until_stopped(files: &[PathBuf], stop: &AtomicBool) -> ReaderCounts {
    let mut counts = ReaderCounts::default();
    while !stop.load(Ordering::Relaxed) {
        for file in files {
            counts.reads += 1;
            match read_file(file) {
                ReaderFileResult::Whole => {}
                ReaderFileResult::Torn => counts.torn += 1,
                ReaderFileResult::Missing => counts.missing += 1,
            }
        }
        std::thread::yield_now();
    }
    counts
}

#[derive(Debug, PartialEq, Eq)]
enum ReaderFileResult {
    Whole,
    Torn,
    Missing,
}

/// A credential document is one JSON object; a partial document, or a mixture of two, does not parse as one.
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
        // The other references were held by the threads.
        assert_eq!(Arc::strong_count(&stop), 1);
        assert!(stop.load(Ordering::Relaxed));
    }
}
