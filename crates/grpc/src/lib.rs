//! gRPC wire types.
