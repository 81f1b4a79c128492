//! Tests in virtual time that a run over a fleet, interrupted at any request, is continued to the same state.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "fleet/fleet_fixture.rs"]
mod fleet_fixture;
#[path = "infra/request_cutter.rs"]
mod request_cutter;
#[path = "support/virtual_time_azure.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod virtual_time_azure;

use crate::fleet_fixture::FleetFixture;
use crate::request_cutter::CutPosition;
use crate::virtual_time_azure::run_in_virtual_time;

const POSITIONS: [CutPosition; 2] = [CutPosition::BeforeRequest, CutPosition::AfterRequest];

#[test]
fn run_that_is_interrupted_at_any_request_is_continued_and_writes_nothing_twice() {
    run_in_virtual_time(async {
        let fixture = FleetFixture::start(&["weu-1", "weu-2"]).await;
        let before = fixture.resource_ids().await;
        fixture.apply().await;
        let requests = fixture.request_count();
        let complete = fixture.access().await;
        assert_eq!(complete.len(), 2, "{complete:?}");
        for number in 0..requests {
            // The second cluster sends the same requests as the first, so each request has both positions.
            let is_second_cluster = number >= requests / 2;
            let position = POSITIONS[(number + usize::from(is_second_cluster)) % 2];
            fixture.remove().await;
            fixture.create_clusters_again().await;
            assert_eq!(fixture.resource_ids().await, before, "{number} {position:?}");
            fixture.cut_at(number, position);
            assert!(fixture.interrupted_apply().await, "{number} {position:?}");
            fixture.apply().await;
            assert_eq!(fixture.access().await, complete, "{number} {position:?}");
            let writes = fixture.write_count();
            fixture.apply().await;
            assert_eq!(fixture.write_count(), writes, "{number} {position:?}");
        }
        fixture.azure.shutdown().await;
    });
}
