"""What other systems still have to be told, written in the transaction of what happened: MLflow and webhooks."""
