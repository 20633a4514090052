"""`penstock leave`: give every Job back and remove every mark of ours from the clusters."""
