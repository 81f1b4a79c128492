//! Tests of the audit trail: its chain, its file, deduplication and lost events.

use std::io;
use std::path::Path;

use lanyard_clock::ManualClock;
use parking_lot::Mutex;

use super::*;
use crate::audit::chain::HashChain;
use crate::audit::recent_events::MAX_REMEMBERED_EVENTS;

fn clock() -> SharedClock {
    Arc::new(ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap()))
}

fn read_event(object: &str) -> AuditEvent {
    AuditEvent::Read(ObjectRead {
        by: ReadRequester {
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            service_account: "s".to_owned(),
            class: "c".to_owned(),
        },
        identity_mode: "managed-identity".to_owned(),
        identity: Some("system-assigned".to_owned()),
        vault: "kv".to_owned(),
        object: object.to_owned(),
        version: Some("1".to_owned()),
        stale: false,
        verdict: AuditVerdict::Allowed { rule: "r".to_owned() },
    })
}

fn open_trail(path: &Path) -> AuditTrail {
    AuditTrail::open(&AuditSink::File(path.to_owned()), clock()).unwrap()
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn verify(lines: &[String]) -> Result<ChainSummary, ChainBreak> {
    verify_chain(lines.iter().map(String::as_str))
}

#[test]
fn a_record_survives_a_round_trip() {
    let line = HashChain::default()
        .next_line("2026-11-21T12:00:00Z".parse().unwrap(), read_event("secret/a"));
    let line = line.unwrap();
    assert!(is_trail_line(&line));
    let record: AuditRecord = serde_json::from_str(&line).unwrap();
    assert_eq!(record.event, read_event("secret/a"));
    assert!(
        line.starts_with("{\"sequence\":1,\"time\":\"2026-11-21T12:00:00Z\",\"event\":\"read\"")
    );
}

#[test]
fn chain_continues_after_restart_and_detects_tampering() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    for round in 0..2 {
        let trail = open_trail(&path);
        for object in ["secret/a", "secret/b"] {
            assert!(trail.record(read_event(object)), "{round}");
            assert!(!trail.record(read_event(object)), "{round}");
        }
    }
    let good = lines(&path);
    let summary = verify(&good).unwrap();
    assert_eq!((summary.lines, summary.chain_starts), (6, 1));
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] = changed[at].replace("\"sequence\":", "\"sequence\":1");
        assert_eq!(verify(&changed).unwrap_err().line, u64::try_from(at).unwrap() + 1);
    }
    let mut removed = good.clone();
    removed.remove(2);
    assert_eq!(verify(&removed).unwrap_err().line, 3);
    let mut swapped = good.clone();
    swapped.swap(3, 4);
    assert!(verify(&swapped).is_err());
    let mut doubled = good;
    doubled.insert(4, doubled[3].clone());
    assert!(verify(&doubled).is_err());
}

#[test]
fn renamed_file_is_reopened_and_the_chain_continues() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("audit.jsonl"), directory.path().join("audit.1"));
    let trail = open_trail(&path);
    trail.record(read_event("secret/a"));
    trail.flush();
    std::fs::rename(&path, &old).unwrap();
    trail.record(read_event("secret/b"));
    trail.flush();
    let all: Vec<_> = lines(&old).into_iter().chain(lines(&path)).collect();
    assert_eq!((lines(&old).len(), lines(&path).len()), (2, 1));
    assert_eq!(verify(&all).unwrap().chain_starts, 1);

    // Truncated in place, as `copytruncate` does.
    std::fs::write(&path, "").unwrap();
    trail.record(read_event("secret/c"));
    drop(trail);
    assert_eq!(lines(&path).len(), 1);
    assert!(lines(&path)[0].contains("\"sequence\":4"), "{:?}", lines(&path));
}

#[test]
fn partial_line_is_terminated_before_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    drop(open_trail(&path));
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"sequence\":2,\"ti")).unwrap();
    drop(open_trail(&path));
    let lines = lines(&path);
    assert_eq!(lines.len(), 3);
    assert_eq!(verify(&lines).unwrap_err().line, 2, "verification reports the partial line");
    assert!(verify(&[lines[0].clone(), lines[2].clone()]).is_ok());
}

#[test]
fn trail_without_output_still_deduplicates() {
    let trail = AuditTrail::without_output(clock());
    assert!(trail.record(read_event("secret/a")));
    assert!(!trail.record(read_event("secret/a")));
    assert!(trail.record(read_event("secret/b")));
    trail.flush();
}

#[test]
fn only_the_owner_reads_the_trail() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    drop(open_trail(&path));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let nowhere = AuditSink::File(directory.path().join("missing").join("audit.jsonl"));
    assert!(AuditTrail::open(&nowhere, clock()).is_err());
}

/// A disk that is full while the flag is set.
#[derive(Debug, Clone, Default)]
struct FakeAuditDisk(Arc<Mutex<(bool, Vec<String>)>>);

impl LineOutput for FakeAuditDisk {
    fn write_line(&mut self, line: &str) -> io::Result<()> {
        let mut disk = self.0.lock();
        if disk.0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        disk.1.push(line.trim_end().to_owned());
        Ok(())
    }
}

#[test]
fn lines_wait_for_a_full_disk_and_lost_events_are_counted() {
    let disk = FakeAuditDisk::default();
    let recent = Arc::default();
    let mut writer = AuditWriter::new(Box::new(disk.clone()), HashChain::default(), recent);
    let time = "2026-11-21T12:00:00Z".parse().unwrap();
    disk.0.lock().0 = true;
    for number in 0..MAX_PENDING_LINES + 3 {
        writer.enqueue(time, read_event(&format!("secret/{number}")), 0);
        writer.write_pending();
    }
    assert!(disk.0.lock().1.is_empty());
    disk.0.lock().0 = false;
    writer.write_pending();
    assert_eq!(disk.0.lock().1.len(), MAX_PENDING_LINES);
    writer.enqueue(time, read_event("secret/last"), 2);
    writer.write_pending();
    let lines = disk.0.lock().1.clone();
    assert_eq!(verify(&lines).unwrap().lines, u64::try_from(MAX_PENDING_LINES).unwrap() + 2);
    assert!(lines[MAX_PENDING_LINES].contains("\"event\":\"lost\",\"count\":5"));
}

#[test]
fn lost_event_is_recorded_when_repeated() {
    let disk = FakeAuditDisk::default();
    let trail =
        AuditTrail::with_output(Box::new(disk.clone()), HashChain::default(), clock()).unwrap();
    trail.flush();
    disk.0.lock().0 = true;
    // More than the pending lines and the queue can hold together.
    let number_of_reads = 2 * MAX_PENDING_LINES + 100;
    for number in 0..number_of_reads {
        assert!(trail.record(read_event(&format!("secret/{number}"))));
    }
    trail.flush();
    disk.0.lock().0 = false;
    trail.flush();
    // The next poll of the same volumes.
    for number in 0..number_of_reads {
        trail.record(read_event(&format!("secret/{number}")));
        if number % 1_000 == 0 {
            trail.flush();
        }
    }
    trail.flush();
    let lines = disk.0.lock().1.clone();
    assert!(verify(&lines).is_ok());
    assert!(lines.iter().any(|line| line.contains("\"event\":\"lost\"")));
    let mut counts = std::collections::BTreeMap::new();
    for line in &lines {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(object) = line["object"].as_str() {
            *counts.entry(object.to_owned()).or_insert(0) += 1;
        }
    }
    assert_eq!(counts.len(), number_of_reads);
    assert!(counts.values().all(|count| *count == 1));
}

#[test]
fn remembered_events_are_bounded_oldest_first() {
    let mut recent = RecentAuditEvents::default();
    for number in 0..=MAX_REMEMBERED_EVENTS {
        assert!(recent.insert(&read_event(&format!("secret/{number}"))));
    }
    assert!(!recent.insert(&read_event("secret/1")));
    assert!(recent.insert(&read_event("secret/0")));
}

/// A file that hangs until it is released.
#[derive(Debug)]
struct HangingOutput(Receiver<()>);

impl LineOutput for HangingOutput {
    fn write_line(&mut self, _line: &str) -> io::Result<()> {
        self.0.recv().map_err(io::Error::other)
    }
}

#[test]
fn flush_times_out_on_a_hanging_file_with_a_full_queue() {
    let (let_go, held) = sync_channel(0);
    let trail =
        AuditTrail::with_output(Box::new(HangingOutput(held)), HashChain::default(), clock())
            .unwrap();
    let shared = trail.0.as_ref().unwrap();
    let shortly = Duration::from_millis(5);
    assert!(!shared.flush(shortly));
    for number in 0..=MAX_PENDING_LINES {
        trail.record(read_event(&number.to_string()));
    }
    assert!(*shared.dropped_events.lock() > 0 && !shared.flush(shortly));
    drop(let_go);
    assert!(shared.flush(Duration::from_mins(1)), "what cannot be written is not waited for");
}
