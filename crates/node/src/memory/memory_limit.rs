//! The memory limit of all volumes of a node and the responses that are read for them.
//!
//! The kernel charges the memory of a volume to the node plugin, which writes it and serves all
//! tenants. The classes of one tenant must not get the plugin killed. A response stays in memory
//! beside the files of its volume until they are written, so it counts too.

use lanyard_volume::{GrowthRequest, MemoryPurpose, VolumesMemoryLimitError};

/// The memory limit of all volumes, fetches and caches of a node, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimit(pub(crate) u64);

impl MemoryLimit {
    /// The limit for a volume. The last quarter is reserved for rotations: new pods must not take
    /// the memory that running pods need for their next certificate, when old and new content
    /// coexist. A volume that rotates too often may not use it either, because it would never
    /// release it.
    pub(crate) const fn limit_for(
        self,
        purpose: MemoryPurpose,
        has_excess_generations: bool,
    ) -> u64 {
        match purpose {
            MemoryPurpose::Rotation if !has_excess_generations => self.0,
            MemoryPurpose::Mount | MemoryPurpose::Rotation => self.0 - self.0 / 4,
        }
    }

    const fn limit_for_request(self, growth: GrowthRequest) -> u64 {
        self.limit_for(growth.purpose, growth.has_excess_generations())
    }

    /// Whether a volume would not fit on an otherwise empty node. A volume that could be mounted
    /// but never rotated is refused: the failure would only show when its certificate expires.
    const fn can_never_fit(self, growth: GrowthRequest) -> bool {
        let GrowthRequest { used_after_scrub, needed, read_bytes, purpose, .. } = growth;
        let new = needed.saturating_add(read_bytes);
        match purpose {
            MemoryPurpose::Mount => {
                needed.saturating_add(new) > self.0 || new > self.limit_for_request(growth)
            }
            MemoryPurpose::Rotation => {
                let settled = GrowthRequest { used: used_after_scrub, ..growth };
                used_after_scrub.saturating_add(new) > self.limit_for_request(settled)
            }
        }
    }

    /// Whether a volume may grow by memory that is reserved for it.
    pub(crate) const fn allows_reserved(self, growth: GrowthRequest) -> bool {
        !self.can_never_fit(growth) && !growth.has_excess_generations()
    }

    /// Checks whether a volume may grow, given the usage of all others. Returns its usage after the
    /// growth.
    pub(crate) const fn admit(
        self,
        others: u64,
        growth: GrowthRequest,
    ) -> Result<u64, VolumesMemoryLimitError> {
        let GrowthRequest { used, needed, read_bytes, purpose, .. } = growth;
        let (limit, can_never_fit) = (self.limit_for_request(growth), self.can_never_fit(growth));
        let own = used.saturating_add(needed);
        if others.saturating_add(own).saturating_add(read_bytes) <= limit && !can_never_fit {
            return Ok(own);
        }
        // Then the total limit is the reason.
        let is_too_large = matches!(purpose, MemoryPurpose::Mount) && can_never_fit;
        let limit = if is_too_large { self.0 } else { limit };
        let used = others.saturating_add(used).saturating_add(read_bytes);
        let (has_excess_generations, during_read) = (growth.has_excess_generations(), false);
        Err(VolumesMemoryLimitError {
            purpose,
            needed,
            used,
            limit,
            can_never_fit,
            has_excess_generations,
            during_read,
        })
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::ErrorHint as _;
    use proptest::prelude::*;

    use super::*;

    const MEBIBYTE: u64 = 1024 * 1024;

    fn growth_request(purpose: MemoryPurpose, used: u64, needed: u64) -> GrowthRequest {
        GrowthRequest { used, used_after_scrub: used, needed, read_bytes: 0, purpose }
    }

    #[test]
    fn mounts_and_excess_generations_leave_a_quarter_to_rotations() {
        use MemoryPurpose::{Mount, Rotation};
        let limit = MemoryLimit(100);
        // The usage of the others and of the volume, its need, and its usage after admission.
        let cases = [
            // A volume that could never rotate is not mounted.
            (Mount, 0, 0, 50, Some(50)),
            (Mount, 0, 0, 51, None),
            (Mount, 25, 0, 50, Some(50)),
            (Mount, 26, 0, 50, None),
            (Mount, 70, 0, 5, Some(5)),
            (Mount, 70, 1, 5, None),
            (Mount, 90, 0, 1, None),
            (Rotation, 70, 5, 25, Some(30)),
            (Rotation, 70, 5, 26, None),
            (Rotation, 0, 50, 50, Some(100)),
            (Rotation, 40, 40, 20, Some(60)),
            (Rotation, 40, 41, 20, None),
            (Rotation, 14, 41, 20, Some(61)),
            (Rotation, 15, 41, 20, None),
            (Rotation, u64::MAX, 1, 1, None),
            (Mount, 1, u64::MAX, u64::MAX, None),
        ];
        for (purpose, others, used, needed, expected) in cases {
            let admitted = limit.admit(others, growth_request(purpose, used, needed)).ok();
            assert_eq!(admitted, expected, "{purpose:?} {others} {used} {needed}");
        }
    }

    #[test]
    fn read_bytes_count_until_written() {
        use MemoryPurpose::{Mount, Rotation};
        let limit = MemoryLimit(100);
        // Purpose, usage of the others and of the volume, need, response size, usage after
        // admission.
        let cases = [
            (Mount, 0, 0, 33, 33, Some(33)),
            (Mount, 0, 0, 34, 33, None),
            (Mount, 30, 0, 25, 20, Some(25)),
            (Mount, 31, 0, 25, 20, None),
            (Rotation, 40, 20, 20, 20, Some(40)),
            (Rotation, 41, 20, 20, 20, None),
        ];
        for (purpose, others, used, needed, read_bytes, expected) in cases {
            let growth = GrowthRequest { read_bytes, ..growth_request(purpose, used, needed) };
            assert_eq!(limit.admit(others, growth).ok(), expected, "{purpose:?} {others} {needed}");
        }
    }

    #[test]
    fn memory_limit_error_names_usage_and_limit() {
        let limit = MemoryLimit(64 * MEBIBYTE);
        let mount = growth_request(MemoryPurpose::Mount, 0, 3 * MEBIBYTE / 2);
        let error = limit.admit(47 * MEBIBYTE, mount).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it needs up to 1.5 MiB; the volumes of this node use 47.0 MiB, and the limit is \
             48.0 MiB for new volumes: the rest is reserved for rotations"
        );
        assert!(!error.can_never_fit && error.hint().unwrap().contains("spread the pods"));
        let error =
            limit.admit(0, growth_request(MemoryPurpose::Mount, 0, 33 * MEBIBYTE)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it needs up to 33.0 MiB, and the same amount again to rotate; the volumes of this node \
             use 0 KiB, and the limit is 64.0 MiB"
        );
        assert!(error.can_never_fit && error.hint().unwrap().contains("fewer or smaller objects"));
        let rotation = growth_request(MemoryPurpose::Rotation, 100, 65 * MEBIBYTE);
        let error = limit.admit(0, rotation).unwrap_err();
        assert!(error.to_string().contains("use 1 KiB, and the limit is 64.0 MiB"), "{error}");
        assert!(error.can_never_fit && error.hint().unwrap().contains("fewer or smaller objects"));
        let hoard = growth_request(MemoryPurpose::Rotation, 5 * MEBIBYTE, 2 * MEBIBYTE);
        let error = limit.admit(47 * MEBIBYTE, hoard).unwrap_err();
        assert!(error.to_string().contains("48.0 MiB for a volume with so many"), "{error}");
        assert!(!error.can_never_fit && error.hint().unwrap().contains("restart the pod"));
    }

    #[test]
    fn rotation_can_never_fit_only_without_room_after_a_scrub() {
        let limit = MemoryLimit(100);
        // The usage of the volume, its usage after a scrub, its need.
        let cases =
            [(80, 10, 40, false), (80, 60, 40, false), (80, 61, 40, true), (90, 90, 5, true)];
        for (used, used_after_scrub, needed, expected) in cases {
            let growth = GrowthRequest {
                used,
                used_after_scrub,
                needed,
                read_bytes: 0,
                purpose: MemoryPurpose::Rotation,
            };
            let error = limit.admit(0, growth).unwrap_err();
            assert_eq!(error.can_never_fit, expected, "{used} {used_after_scrub} {needed}");
        }
    }

    proptest! {
        /// However volumes are mounted, rotated and unpublished, their total memory stays below the
        /// limit.
        #[test]
        fn no_order_of_claims_exceeds_the_limit(
            limit in 0u64..10_000,
            claims in prop::collection::vec((0usize..6, prop::option::of(0u64..4_000)), 0..80),
        ) {
            let mut shares = [0u64; 6];
            for (volume, needed) in claims {
                let used = std::mem::take(&mut shares[volume]);
                let others: u64 = shares.iter().sum();
                // Without need the volume is unpublished.
                let Some(needed) = needed else { continue };
                let purpose = if used > 0 { MemoryPurpose::Rotation } else { MemoryPurpose::Mount };
                shares[volume] = match MemoryLimit(limit).admit(others, growth_request(purpose, used, needed)) {
                    Ok(share) => {
                        prop_assert_eq!(share, used + needed);
                        share
                    }
                    Err(error) => {
                        prop_assert_eq!(error.used, others + used);
                        let twice = if error.can_never_fit { needed } else { 0 };
                        prop_assert!(error.used + needed + twice > error.limit);
                        used
                    }
                };
                prop_assert!(shares.iter().sum::<u64>() <= limit);
            }
        }
    }
}
