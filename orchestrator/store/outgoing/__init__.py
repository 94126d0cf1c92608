"""Messages for other systems, MLflow and webhooks, written in the transaction of the event."""
