//! The Azure resources of a hosted cluster: which ones it needs, how they differ from the live
//! ones, and how they are created and removed.
