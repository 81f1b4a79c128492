//! The transport to Azure (proxy, CA, throttling, retry) and typed ARM calls
