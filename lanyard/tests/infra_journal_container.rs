//! Tests in virtual time the journal in a blob container: its lease, and commands that end or lose the lease at any
//! time.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "infra/cluster_fixture.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod cluster_fixture;
#[path = "support/cluster_resources.rs"]
mod cluster_resources;
#[path = "infra/renewal_hanger.rs"]
mod renewal_hanger;
#[path = "infra/reply_loser.rs"]
mod reply_loser;
#[path = "infra/request_cutter.rs"]
mod request_cutter;
#[path = "support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod virtual_time_azure;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Bytes;
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request};
use lanyard_changes::{JournalAccess, ResourceKey, ResourceOutcome, RunReport};
use lanyard_clock::ErrorHint as _;
use lanyard_vocabulary::format_error_chain;
use serde_json::json;

use crate::cluster_fixture::ClusterFixture;
use crate::renewal_hanger::RenewalHanger;
use crate::reply_loser::ReplyLoser;
use crate::request_cutter::CutPosition;
use crate::virtual_time_azure::run_in_virtual_time;

async fn start() -> ClusterFixture {
    let mut fixture = Box::pin(ClusterFixture::start()).await;
    fixture.use_container().await;
    fixture
}

fn reason(report: &RunReport, key: &str) -> String {
    match &report.outcomes[&ResourceKey::new(key)] {
        ResourceOutcome::Failed(error) => format_error_chain(error),
        outcome => format!("the write did not fail: {outcome:?}"),
    }
}

#[test]
fn cluster_with_its_journal_in_a_container_is_created_and_removed() {
    run_in_virtual_time(async {
        let fixture = start().await;
        let before = fixture.resource_ids().await;
        assert!(fixture.apply().await.succeeded());
        assert_eq!(fixture.plan().await.writes().count(), 0);
        assert_eq!(fixture.recorded_count().await, 9);
        assert!(fixture.destroy().await.succeeded());
        assert_eq!(fixture.resource_ids().await, before);
        assert_eq!(fixture.recorded_count().await, 0);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn run_that_ends_at_a_request_frees_the_journal_and_is_continued() {
    run_in_virtual_time(async {
        let fixture = start().await;
        let before = fixture.resource_ids().await;
        fixture.apply().await;
        let complete = fixture.resource_ids().await;
        let requests = fixture.request_count();
        fixture.destroy().await;
        let mut cuts = 0;
        // Requests to Azure Resource Manager and to the container alternate.
        for number in (0..requests).step_by(3) {
            for position in [CutPosition::BeforeRequest, CutPosition::AfterRequest] {
                fixture.cut_at(number, position);
                cuts += usize::from(fixture.interrupted_apply().await);
                let report = fixture.apply().await;
                assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
                assert_eq!(fixture.resource_ids().await, complete, "{number} {position:?}");
                fixture.cut_at(number, position);
                cuts += usize::from(fixture.interrupted_destroy().await);
                let report = fixture.destroy().await;
                assert!(report.succeeded(), "{number} {position:?}: {:?}", report.outcomes);
                assert_eq!(fixture.resource_ids().await, before, "{number} {position:?}");
            }
        }
        assert!(cuts >= requests / 2, "{cuts} of {requests} requests interrupted a run");
        fixture.azure.shutdown().await;
    });
}

#[test]
fn second_command_says_which_one_holds_the_lease() {
    run_in_virtual_time(async {
        let fixture = start().await;
        let first = fixture.container_access("`lanyard apply azure`, process 7", |inner| inner);
        let journal = fixture.run(fixture.open_container(&first)).await.unwrap();
        let second = fixture.container_access("second", |inner| inner);
        let impatient = JournalAccess { lock_timeout: Some(Duration::ZERO), ..second.clone() };
        let error = fixture.run(fixture.open_container(&impatient)).await.unwrap_err();
        let text = format_error_chain(&error);
        assert!(text.contains("another command holds the lease of `https://"), "{text}");
        assert!(
            text.contains("journals/team/journal.jsonl`: `lanyard apply azure`, process 7"),
            "{text}"
        );
        assert!(error.hint().unwrap().contains("--lock-timeout"), "{:?}", error.hint());

        // The lease is renewed while the first command runs, for longer than the second one waits.
        let clock = fixture.azure.shared_clock();
        let began = clock.monotonic();
        let error = fixture.run(fixture.open_container(&second)).await.unwrap_err();
        assert!(format_error_chain(&error).contains("process 7"));
        let waited = clock.monotonic().saturating_sub(began).as_secs();
        assert!((75..90).contains(&waited), "{waited}");

        fixture.run(journal.close()).await.unwrap();
        fixture.run(fixture.open_container(&impatient)).await.unwrap();
        fixture.azure.shutdown().await;
    });
}

#[test]
fn lease_of_a_command_that_died_ends_after_a_minute() {
    run_in_virtual_time(async {
        let fixture = start().await;
        let access = fixture.container_access("first", |inner| inner);
        // Dropping the journal ends the renewal without a release, as a kill of the process would.
        drop(fixture.run(fixture.open_container(&access)).await.unwrap());
        let clock = fixture.azure.shared_clock();
        let began = clock.monotonic();
        fixture.run(fixture.open_container(&access)).await.unwrap();
        let waited = clock.monotonic().saturating_sub(began).as_secs();
        assert!((55..=65).contains(&waited), "{waited}");
        fixture.azure.shutdown().await;
    });
}

#[test]
fn lease_survives_renewals_that_hang() {
    run_in_virtual_time(async {
        let fixture = start().await;
        let hanger = RenewalHanger::default();
        let access = fixture.container_access("first", |inner| hanger.wrap(inner));
        let journal = fixture.run(fixture.open_container(&access)).await.unwrap();
        fixture.azure.advance(Duration::from_mins(3)).await;
        assert!(hanger.renewal_count() >= 8, "{}", hanger.renewal_count());
        let second = fixture.container_access("second", |inner| inner);
        let impatient = JournalAccess { lock_timeout: Some(Duration::ZERO), ..second };
        let error = fixture.run(fixture.open_container(&impatient)).await.unwrap_err();
        assert!(format_error_chain(&error).contains("another command holds the lease"));
        fixture.run(journal.close()).await.unwrap();
        fixture.azure.shutdown().await;
    });
}

#[test]
fn journal_of_another_cluster_frees_its_lease() {
    run_in_virtual_time(async {
        let fixture = start().await;
        fixture.apply().await;
        let access = fixture.container_access("second", |inner| inner);
        let impatient = JournalAccess { lock_timeout: Some(Duration::ZERO), ..access };
        let opened = fixture.run(fixture.open_container_of("other", &impatient)).await;
        let text = opened.unwrap_err().to_string();
        assert!(text.contains("belongs to the cluster `lagoon"), "{text}");
        let journal = fixture.run(fixture.open_container(&impatient)).await.unwrap();
        fixture.run(journal.close()).await.unwrap();
        fixture.azure.shutdown().await;
    });
}

/// An HTTP client that replaces the content of blobs by 51 million line feeds.
#[derive(Debug)]
struct LongBlobs(Arc<dyn HttpClient>);

#[async_trait]
impl HttpClient for LongBlobs {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let reply = self.0.execute_request(request).await?;
        if request.method() != Method::Get || !reply.status().is_success() {
            return Ok(reply);
        }
        let (status, headers, _) = reply.deconstruct();
        let piece = Bytes::from(vec![b'\n'; 1_000_000]);
        let pieces =
            futures::stream::iter((0..51).map(move |_| azure_core::Result::Ok(piece.clone())));
        Ok(AsyncRawResponse::new(status, headers, Box::pin(pieces)))
    }
}

#[test]
fn blob_that_is_longer_than_any_journal_is_rejected_and_frees_its_lease() {
    run_in_virtual_time(async {
        let fixture = start().await;
        fixture.apply().await;
        let access = fixture.container_access("first", |inner| Arc::new(LongBlobs(inner)));
        let error = fixture.run(fixture.open_container(&access)).await.unwrap_err();
        let text = format_error_chain(&error);
        assert!(text.ends_with("journal.jsonl` has more than 50000000 bytes"), "{text}");
        assert!(error.hint().unwrap().contains("lanyard import azure"), "{:?}", error.hint());
        let access = fixture.container_access("second", |inner| inner);
        let impatient = JournalAccess { lock_timeout: Some(Duration::ZERO), ..access };
        let journal = fixture.run(fixture.open_container(&impatient)).await.unwrap();
        fixture.run(journal.close()).await.unwrap();
        fixture.azure.shutdown().await;
    });
}

#[test]
fn command_that_lost_its_lease_sends_no_further_write() {
    run_in_virtual_time(async {
        let fixture = start().await;
        // The write of the network is repeated until the run ends, and no renewal succeeds.
        let busy = json!({ "type": "status", "status": 409, "code": "AnotherOperationInProgress",
            "message": "Rejected by the test." });
        let unavailable = json!({ "type": "status", "status": 503, "code": "ServerBusy",
            "message": "Rejected by the test." });
        let from = fixture.azure.shared_clock().now() + jiff::SignedDuration::from_mins(1);
        for rule in [
            json!({ "name": "busy", "service": "arm", "method": "PUT",
                "path": "*/virtualNetworks/*", "effect": busy }),
            json!({ "name": "renewal", "service": "blob", "method": "PUT", "from": from,
                "effect": unavailable }),
        ] {
            fixture.azure.change("POST", "faults", &rule.to_string()).await;
        }
        let clock = fixture.azure.shared_clock();
        let began = clock.monotonic();
        let report = fixture.apply().await;
        let time = clock.monotonic().saturating_sub(began);
        assert!(!report.succeeded());
        let reason = reason(&report, "vnet");
        assert!(reason.contains("is lost: it was not renewed for 50 s"), "{reason}");
        assert!(time < Duration::from_mins(3), "{time:?}");
        // The last renewal was before the fault, and the lease counts as held for 50 s after it.
        let end = from + jiff::SignedDuration::from_secs(50);
        let last = fixture.azure.requests("arm", from).into_iter().max().unwrap();
        assert!(last <= end, "{last} is after {end}");
        let writes = fixture.write_count();
        fixture.azure.advance(Duration::from_mins(5)).await;
        assert_eq!(fixture.write_count(), writes, "a write was sent without the lease");

        fixture.azure.change("DELETE", "faults", "").await;
        let report = fixture.apply().await;
        assert!(report.succeeded(), "{:?}", report.outcomes);
        fixture.azure.shutdown().await;
    });
}

#[test]
fn entry_whose_reply_is_lost_is_written_once() {
    run_in_virtual_time(async {
        let mut fixture = start().await;
        let loser = ReplyLoser::default();
        let access = fixture.container_access("first", |inner| loser.wrap(inner));
        fixture.set_container_access(access);
        assert!(fixture.apply().await.succeeded());
        assert!(loser.lost_count() > 5, "{}", loser.lost_count());
        // Each resource of the cluster is written once.
        let lines = fixture.journal_lines().await;
        for key in ["private-zone", "vnet", "load-balancer"] {
            let text = format!("\"key\":\"{key}\"");
            let recorded =
                |line: &&String| line.contains("\"entry\":\"recorded\"") && line.contains(&text);
            assert_eq!(lines.iter().filter(recorded).count(), 1, "{key}: {lines:#?}");
        }
        assert!(fixture.destroy().await.succeeded());
        assert_eq!(fixture.recorded_count().await, 0);
        fixture.azure.shutdown().await;
    });
}
