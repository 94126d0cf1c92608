"""The pages: each is rendered whole by the server from a snapshot; scripts only keep it fresh and draw figures."""
