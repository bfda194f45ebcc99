"""One small adapter for each implementation; see `benchmarks.peer.Peer`."""
